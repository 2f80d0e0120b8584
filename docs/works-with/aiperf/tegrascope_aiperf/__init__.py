"""A telemetry collector for AIPerf: the power and energy of a whole Jetson."""
