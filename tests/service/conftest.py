"""Daemons and servers for the tests of this folder."""

from tests.daemons import start
from tests.monitoring.prometheus import monitoring

__all__ = ["monitoring", "start"]
