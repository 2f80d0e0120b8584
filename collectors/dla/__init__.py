"""Reads the kernel's trace of DLA tasks."""
