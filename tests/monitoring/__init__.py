"""Real Prometheus, Alertmanager and a receiver of their messages, for tests of any part."""
