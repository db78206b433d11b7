"""Policies: how the rates of a VLAN's entries are decided. Start with interface.py; registry.py lists them all."""
