"""``dets bench marks``: what congestion marks cost in meters, in flow entries and in the control step.

Start reading at ``bench``.
"""
