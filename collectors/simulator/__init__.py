"""The simulated board: data, physics and the lines that it prints."""
