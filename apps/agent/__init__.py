"""The host's end of DETS: an agent that shapes what its host's VNs send, so that the edge port need not.

It exchanges section V's control frames with the controller and sets HTB classes over rtnetlink; it uses no OpenFlow and
no framework. Start reading at ``pair_state`` (its decisions, pure), then ``agent`` (its loop).
"""
