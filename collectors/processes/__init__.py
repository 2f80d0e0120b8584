"""Users of the machine: processes by name, container or unit, with their CPU time and memory.

The DLA time of a process comes from the trace (``collectors/dla``), which asks here for names only.
"""
