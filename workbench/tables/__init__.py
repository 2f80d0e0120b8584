"""Recorded logs as pandas and Parquet tables, and runs that are paired with them offline.

Commands import it late: the daemon runs without pandas.
"""

from ...parsers.errors import PIP_INSTALL, UserError

try:
    import pandas as pandas
except ImportError:
    raise UserError("pandas is not installed", f"{PIP_INSTALL} pandas pyarrow") from None
