"""The long haul: churn on Open vSwitch, and a judgement of everything that must hold meanwhile (docs/soak.md)."""
