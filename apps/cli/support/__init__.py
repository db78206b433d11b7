"""Shared parts of the sub-commands: the REST client, options, output and files.

Start with command_options.py.
"""
