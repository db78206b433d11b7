"""The imperative shell around the functional core: the controller's application, its launcher and the command line.

Start with dets.py, the Ryu application; the main packages are runtime, southbound, settings, rest and cli.
"""
