"""The meters of one switch as the controller has them: ids, settings, and those that limit nothing and only count.

Start with id_pool.py and meter_settings.py; phantom.py and counting.py are about congestion marks.
"""
