"""What the sub-commands share: the REST client, options, output and files.

Start with command_options.py.
"""
