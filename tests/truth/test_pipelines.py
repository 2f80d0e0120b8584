"""Some pipelines of real GStreamer against their promise, with seeds drawn at run time."""

import secrets
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import pytest

from .pipelines import DEPARTURES, bench, check, plan

PLACE = ("resnet50", "dla0")
# The energy of a pipeline needs minutes; these show in its load, its core or its rate.
PLANTED = (None, "wrong core", "GPU fallback", "contention")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not shutil.which("gst-launch-1.0"), reason="no GStreamer: apt install gstreamer1.0-tools"
    ),
]


def test_departures_are_named_and_nothing_else(tmp_path):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    bench(PLACE, tmp_path)
    pipelines = []
    for number, planted in enumerate(PLANTED):
        pipeline = plan(number, seed, planted, tmp_path, [PLACE])
        pipelines.append(replace(pipeline, length_seconds=30.0))
    with ProcessPoolExecutor(len(pipelines)) as pool:
        answers = list(pool.map(check, pipelines, [tmp_path] * len(pipelines)))
    for pipeline, found, words in answers:
        if pipeline.planted is None:
            assert found.verdict != "does_not_hold", words
        else:
            assert found.verdict == "does_not_hold", words
            assert found.reason.name == DEPARTURES[pipeline.planted], words
