"""The Gatekeeper paper: guaranteed access links in both directions; idle bandwidth is lent.

Start with ingress_monitor.py (the receiving side notifies senders of drops), then egress_limits.py (the sending side
halves limits, raises them and schedules its port); policy.py joins the two.
"""
