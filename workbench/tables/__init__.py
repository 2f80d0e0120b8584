"""Recorded logs as tables, and runs that are paired with them offline.

Logs are read with numpy. The modules ``frames``, ``data_frames`` and ``dataset`` also need pandas
and pyarrow. Commands import all of it late: the daemon runs without numpy.
"""

from ...parsers.errors import PIP_INSTALL, UserError

try:
    import numpy as numpy
except ImportError:
    raise UserError("numpy is not installed", f"{PIP_INSTALL} numpy") from None
