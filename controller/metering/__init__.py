"""Meters: counters become rates, and grants become meter settings.

Start with measurement.py (rates from counters), then enforcement.py (why a meter is not simply set to its grant).
"""
