"""A program that logs buffers as GStreamer's tracer does: ``gst_program.py OUTPUT COUNT SECONDS``.

COUNT buffers enter and leave the element ``nv``, evenly over so many seconds; the times of entry go
to OUTPUT as JSON. GStreamer's clock starts five seconds before the program.
"""

import json
import os
import sys
import time
from pathlib import Path

started = time.monotonic_ns() - 5 * 10**9
output, count, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])


def log(file, message):
    now = time.monotonic_ns() - started
    at = f"0:00:{now // 10**9:02}.{now % 10**9:09}"
    print(f"{at} {os.getpid()} 0x5f TRACE  GST_TRACER :0:: {message}", file=file, flush=True)
    return now


def push(file, giver, taker, stamp):
    now = time.monotonic_ns() - started
    log(
        file,
        f"buffer, ts=(guint64){now}, element-ix=(uint){giver}, peer-element-ix=(uint){taker},"
        f" have-buffer-pts=(boolean)1, buffer-pts=(guint64){stamp};",
    )
    return now + started


entries = []
with open(os.environ["GST_DEBUG_FILE"], "w") as file:  # noqa: PTH123
    for number, name in enumerate(("source", "nv", "sink")):
        log(file, f"new-element, ix=(uint){number}, name=(string){name}, is-bin=(boolean)0;")
    begin = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begin + number * seconds / count - time.monotonic()))
        entries.append(push(file, 0, 1, number))
        push(file, 1, 2, number)
output.write_text(json.dumps(entries))
