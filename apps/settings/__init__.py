"""Overrides: values that operators set while the controller runs; checked, stored, then applied.

Start with settings.py; store.py is the SQLite store.
"""
