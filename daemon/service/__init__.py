"""The long-running service: schedule, life cycle, systemd."""
