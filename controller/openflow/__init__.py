"""OpenFlow 1.3 messages as bytes and columns, without Ryu.

Start with messages.py, then flows.py, meters.py and multipart.py.
"""
