"""The Gatekeeper paper: guaranteed access links both ways; what is idle is lent out.

Start with ingress_monitor.py (the receiving side tells senders of drops), then egress_limits.py (the sending side
halves, rises and schedules); policy.py joins the two.
"""
