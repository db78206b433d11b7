"""Distributed Ethernet Traffic Shaping (DETS) as a centralized OpenFlow 1.3 controller: the functional core.

Nothing in this package imports the controller framework, reads a clock or does input and output, except the two
adapters that say so in their first line.
"""

__version__ = "0.1.0"
