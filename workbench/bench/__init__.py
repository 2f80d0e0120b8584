"""Benchmarks of models on accelerators, one by one and together."""
