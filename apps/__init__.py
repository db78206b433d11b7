"""The thin shell around the functional core: the controller's application, its launcher and the command line.

Start with dets.py, the Ryu application; the rooms are runtime, southbound, settings, rest and cli.
"""
