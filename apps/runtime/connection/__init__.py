"""One switch's connection: what it may send and cost, what waits to be sent, and the same as Ryu's applications see it.

Start with switch_connection.py (the controller's own requests and replies); ryu_datapath.py is Ryu's end of it.
"""
