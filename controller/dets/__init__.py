"""The DETS paper: its five messages, the send-rate controllers and the rate allocators.

Start with messages.py, then rate_allocator.py (receiving side) and send_rate_controller.py (sending side). The four
allocation algorithms are in controller/allocation; section V's messages on the wire are in control_frames.py.
"""
