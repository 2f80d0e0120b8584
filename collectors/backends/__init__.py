"""Inference back-ends, the only modules that import such a library; loaded by the worker."""
