"""The controller's view of the agents on hosts: which edge port has which, what they report, what they are told.

It is pure: frames go in and out as bytes, time is an argument. Start at ``ports``, then ``reports``, ``told_pairs``
(which pairs they are told of) and ``speech``.
"""
