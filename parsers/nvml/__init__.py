"""Lines of the NVML reader become GPU samples."""
