"""What operators set while the controller runs: checked, stored, then put in force.

Start with settings.py; store.py is the SQLite store.
"""
