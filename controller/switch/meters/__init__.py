"""The meters of one switch: ids, settings, and meters that only count.

Start with id_pool.py and meter_settings.py; phantom.py and counting.py are about congestion marks.
"""
