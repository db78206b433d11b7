"""Effective limits: what the fabric can carry, and operators' overrides of the configuration file.

Start with hose_model.py (what fits on the links), then effective_settings.py (which of two settings wins) and
change_validation.py (the checks of a change).
"""
