"""The sub-commands of ``dets``, one module a group.

Start with limits.py.
"""
