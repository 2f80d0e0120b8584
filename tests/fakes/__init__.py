"""Stand-ins for libraries that need hardware, each with the surface of a given version."""
