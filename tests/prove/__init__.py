"""Tests of ``tegrascope prove`` on played boards."""
