"""Measures an application's own work: ``tegrascope.window``, ``lock_in`` and their API client."""
