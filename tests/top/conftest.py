"""Daemons for the tests beside this file."""

from tests.daemons import start

__all__ = ["start"]
