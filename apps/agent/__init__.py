"""The host's end of DETS: an agent that shapes what its host's VNs send, where the edge port need not.

It speaks section V's control frames with the controller and sets HTB classes over rtnetlink; it knows nothing of
OpenFlow and imports no framework. Start reading at ``pair_state`` (what it decides, pure), then ``agent`` (its loop).
"""
