"""One switch's connection: its limits and costs, its send queue, and its form for Ryu's applications.

Start with switch_connection.py (the controller's own requests and replies); ryu_datapath.py is Ryu's side of it.
"""
