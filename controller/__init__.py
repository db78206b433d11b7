"""Distributed Ethernet Traffic Shaping (DETS) as a centralized OpenFlow 1.3 controller: the functional core.

Nothing in this package imports the controller framework, reads a clock or does input and output, except that
``config`` reads the configuration file. Start with loop/control_step.py (one interval) and central/controller.py (one
fabric).
"""

__version__ = "1.0.0"
