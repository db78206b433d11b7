"""The control of the model fabric: the controller, agents on hosts, or nothing. Start with control_plane.py."""
