"""Configuration: its records, its file, limits and identity."""
