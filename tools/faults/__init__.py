"""Faults for a live daemon: ``nice python -m tools.faults --faults 1000``.

Each file has the kinds of one subject, as a table: the name, the fault, and what must hold besides
what holds after every fault. That is: the daemon is ready again with telemetry of now, no old value
was served as live, and no run is lost that was reported as stored.
"""
