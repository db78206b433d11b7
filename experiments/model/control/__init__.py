"""What the model fabric is controlled by: the controller, agents on hosts, or nothing. Start with control_plane.py."""
