"""What meters report and what they are set to: counters become rates, grants become meter settings.

Start with measurement.py (rates from counters), then enforcement.py (why a meter is not simply set to its grant).
"""
