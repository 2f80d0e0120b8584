"""One measuring session: sources, timeline, energy counters, executors and completion of runs."""
