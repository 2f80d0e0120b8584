"""Daemons and servers for the tests beside this file."""

from tests.daemons import start
from tests.monitoring.prometheus import monitoring

__all__ = ["monitoring", "start"]
