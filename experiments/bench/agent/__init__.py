"""``dets bench agent``: what an agent on a host costs, and how true the rates are that it sets.

Start reading at ``bench``.
"""
