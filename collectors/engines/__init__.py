"""Inference back-ends: the only modules that import such a library, and only in the worker."""
