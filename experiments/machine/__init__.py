"""The machine that experiments run on: the controller's process, the processors, the kernel datapath.

Start with controller_process.py.
"""
