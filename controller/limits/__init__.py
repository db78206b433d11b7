"""Which limits are in force: what the fabric can carry, and what operators set over the configuration file.

Start with hose_model.py (what fits on the links), then effective_settings.py (which of two settings wins)
and change_validation.py (what is checked of a change first).
"""
