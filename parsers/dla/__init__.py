"""Lines of the DLA trace reader become events."""
