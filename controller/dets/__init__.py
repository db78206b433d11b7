"""The DETS paper: its five messages, the send-rate controllers and the rate allocators.

Start with messages.py, then rate_allocator.py (receiving side) and send_rate_controller.py (sending side). Each of the
four allocation algorithms is a file, and so is Fair Level, which is not the paper's.
"""
