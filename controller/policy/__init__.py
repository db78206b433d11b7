"""Policies: how the rates of a VLAN's pairs are decided. Start with interface.py; registry.py lists them all."""
