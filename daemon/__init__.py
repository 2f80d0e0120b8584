"""The service: it schedules, measures, stores and serves. The tools are in ``workbench/``."""
