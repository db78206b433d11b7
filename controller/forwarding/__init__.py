"""Forwarding: where hosts are, how switches are linked, and the flow entries that follow from both."""
