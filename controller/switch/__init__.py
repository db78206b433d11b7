"""One switch in the controller: its flow entries, meters and queues, desired and installed.

Start with switch_record.py; its meters are in ``meters``.
"""
