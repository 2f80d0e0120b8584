"""Daemons for the tests of this folder."""

from tests.daemons import start

__all__ = ["start"]
