"""The format of tegrastats: one line and its record, whole logs as columns, the printed times.

Text in, records out: no file access, and no judgement of what a record means for a board. The
modules ``bulk``, ``digits`` and ``printed_time`` need numpy, so only readers of whole logs import
them.
"""

from .line import PARSE_REASONS as PARSE_REASONS
from .line import parse_line as parse_line
from .line import parse_records as parse_records
from .line import render_line as render_line
