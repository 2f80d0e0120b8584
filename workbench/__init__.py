"""The tools that a person starts: bench, inspect, compare, top and so on, and the command line.

The service does not belong here: it is in ``daemon/``, which imports nothing of this room.
"""
