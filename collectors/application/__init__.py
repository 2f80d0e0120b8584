"""Measures an application's own inference: ``tegrascope.window`` and its API client."""
