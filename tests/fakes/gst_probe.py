"""A pipeline that notes for itself when buffers enter and leave an element; for Python with gi.

``gst_probe.py OUTPUT ELEMENT DESCRIPTION`` writes two lists of CLOCK_MONOTONIC as JSON.
"""

import json
import sys
import time
from pathlib import Path

import gi

gi.require_version("Gst", "1.0")
from gi.repository import Gst  # noqa: E402

Gst.init(None)
pipeline = Gst.parse_launch(sys.argv[3])
element = pipeline.get_by_name(sys.argv[2])
noted = {}
for name in ("sink", "src"):
    times = noted[name] = []

    def note(_pad, _info, times=times):
        times.append(time.monotonic_ns())
        return Gst.PadProbeReturn.OK

    pad = element.get_static_pad(name)
    if pad is not None:
        pad.add_probe(Gst.PadProbeType.BUFFER, note)
pipeline.set_state(Gst.State.PLAYING)
kinds = Gst.MessageType.EOS | Gst.MessageType.ERROR
message = pipeline.get_bus().timed_pop_filtered(60 * Gst.SECOND, kinds)
pipeline.set_state(Gst.State.NULL)
Path(sys.argv[1]).write_text(json.dumps(noted))
sys.exit(message is None or message.type != Gst.MessageType.EOS)
