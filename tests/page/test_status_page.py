"""The status page in a real browser: what is known is drawn, as it comes, for every reader."""

import base64
import itertools
import re
from contextlib import suppress
from datetime import datetime, timezone
from itertools import combinations
from math import dist
from pathlib import Path

import pytest

from tegrascope.collectors.processes.watch import ProcessUse
from tegrascope.daemon.settings.config import Limits

from .board import CLOCK, Board

AUDIT = Path(__file__).with_name("audit.js").read_text(encoding="utf-8")
BANDS = "document.querySelectorAll('#lanes a')"
LOOKS = [(1280, False), (1280, True), (390, False), (390, True)]


def telemetry(ago: float) -> "dict[str, float]":
    """A board that works for the last 100 s; its DLA is on then, and off before."""
    works = ago < 100
    return {
        "rails.VDD_GPU_SOC.instant_watts": 8.0 if works else 2.0,
        "rails.VDD_CPU_CV.instant_watts": 4.0 if works else 1.0,
        "gpu.utilization_ratio": 0.25,
        "emc.utilization_ratio": 0.5,
        "cpu.0.utilization_ratio": 0.1,
        "cpu.1.utilization_ratio": 0.3,
        "dla.0.on": 1.0 if works else 0.0,
        **({"dla.0.busy_ratio": 0.75} if works else {}),
        **{f"temperatures_celsius.zone{n}": 40.0 + n for n in range(6)},
    }


def path(signal: str) -> str:
    return f"(document.querySelector('[data-signal=\"{signal}\"]')?.getAttribute('d') ?? '')"


def legend(words: str) -> str:
    """Return an expression for the value in the legend behind these words."""
    buttons = "[...document.querySelectorAll('.legend button')]"
    return f"{buttons}.find(b => b.textContent.includes({words!r}))?.querySelector('b')"


def told(words: str) -> str:
    """Return an expression for its text."""
    return f"({legend(words)}?.textContent ?? '').replace('\\u00a0', ' ')"


def wait_live(board, tab, code, **changes):
    """Wait while samples keep coming: on a slow machine the last one soon is of the past."""
    for _ in range(240):
        board.sample(telemetry(0) | changes)
        with suppress(AssertionError):
            return tab.wait_for(code, 0.5)
    raise AssertionError(f"in vain: {code}")


@pytest.fixture
def busy(board):
    """A board with ten minutes of telemetry, a finished run and one in flight."""
    board.fill(telemetry, 600, 1, 1.0)
    board.finish(
        95, 40, quality=("not_steady", "simulated"), inferences=400, environment={"simulated": True}
    )
    board.finish(400, 20, device="gpu", workload="yolo", outcome="failed", reason="no engine")
    board.live.set_workloads({"resnet": "dla0", "yolo": "gpu", "now": "dla1"})
    board.begin(20, workload="now", device="dla1")
    return board


@pytest.mark.parametrize(("width", "dark"), LOOKS, ids=["wide", "wide-dark", "phone", "phone-dark"])
def test_page_is_whole_on_every_screen(busy, show, width, dark):
    """All is there; nothing is pale, cut, fetched from elsewhere or complained of."""
    tab = show(busy.url, width=width, dark=dark)
    tab.wait_for(f"{BANDS}.length === 3")
    for signal in ("watts/module", "ratio/gpu", "ratio/dla0:ftrace", "on/dla0", "celsius/zone5"):
        tab.wait_for(f"{path(signal)}.startsWith('M')")
    for details in range(6):
        tab.run(f"document.querySelectorAll('#charts details')[{details}].open = true")
    tab.wait_for("document.querySelectorAll('#charts tbody tr').length > 8")
    assert tab.run(AUDIT) == []
    assert tab.complaints == []
    assert [url for url in tab.asked if "/api/v1/" not in url and url[:5] != "data:"] == [busy.url]
    assert "these figures are not from a real board" in tab.run("document.body.innerText")
    assert tab.run("document.title") == "simulated · made-board · tegrascope"
    assert tab.run("document.querySelector('#tools a').href") == f"{busy.url}metrics/dcgm"
    paper = tab.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")


def test_figures_are_those_of_the_samples(busy, show):
    """Legend and table tell what was measured: the module is the sum of its rails."""
    tab = show(busy.url)
    wait_live(busy, tab, f"{told('module')} === '12.0 W'")
    tab.run("document.querySelector('#power .stage').focus()")
    tab.press("End", 35)
    assert tab.run(told("VDD_CPU_CV")) == "4.00 W"
    assert tab.run(told("CPU")) in ("20 %", "4.00 W")
    assert tab.run(told("DLA0 busy (ftrace)")) == "75 %"
    assert tab.run(told("DLA0 switched on")) == "100 %"
    tab.run("document.querySelector('#power details').open = true")
    row = "document.querySelector('#power tbody tr')?.innerText.replace(/\\u00a0/g, ' ') ?? ''"
    words = wait_live(busy, tab, f"({row}).startsWith('module\\t12.0 W') && ({row})")
    assert words.split("\t")[0::4] == ["module", "12.0 W"]
    assert words.split("\t")[3] == "3.00 W"


def test_four_hottest_zones_are_shown_and_the_rest_at_a_click(busy, show):
    """A dozen zones would be a tangle: all are in the legend, four are drawn."""
    tab = show(busy.url)
    tab.wait_for(path("celsius/zone5"))
    drawn = "document.querySelectorAll('#temperature path.curve[data-signal]').length"
    assert tab.run(drawn) == 4
    assert not tab.run(path("celsius/zone0"))
    button = "[...document.querySelectorAll('#temperature .legend button')].at(-1)"
    assert tab.run(f"{button}.getAttribute('aria-pressed')") == "false"
    tab.run(f"{button}.click()")
    assert tab.run(drawn) == 5
    assert tab.run(f"{button}.getAttribute('aria-pressed')") == "true"


def test_page_follows_the_telemetry(board, show):
    """A new sample is on the page without anybody's doing, unless it is paused."""
    board.fill(telemetry, 30, 0.5, 0.5)
    tab = show(board.url)
    wait_live(board, tab, f"{told('VDD_GPU_SOC')} === '8.00 W'")
    before = tab.run(path("watts/VDD_GPU_SOC"))
    changes = {"rails.VDD_GPU_SOC.instant_watts": 16.0}
    wait_live(board, tab, f"parseFloat({told('VDD_GPU_SOC')}) > 8", **changes)
    assert tab.run(path("watts/VDD_GPU_SOC")) != before
    tab.run("document.getElementById('pause').click()")
    shown = tab.run(told("samples") + " + document.getElementById('charts').innerHTML")
    board.sample({**telemetry(0), "rails.VDD_GPU_SOC.instant_watts": 100.0})
    samples = board.live.snapshot.sources[0].samples
    tab.wait_for(f"document.getElementById('health').innerText.includes('{samples} samples')")
    assert tab.run(told("samples") + " + document.getElementById('charts').innerHTML") == shown
    tab.run("document.getElementById('pause').click()")
    tab.wait_for(f"document.getElementById('charts').innerHTML !== {shown!r}")
    assert tab.complaints == []


def test_what_is_not_known_is_not_drawn(board, show):
    """A gap in the samples is a gap in the line; what no sample told has no line and no zero."""
    values = {"rails.VDD_IN.instant_watts": 5.0, "gpu.utilization_ratio": 0.5}
    board.fill(lambda _: values, 300, 200, 1.0)
    board.fill(lambda _: values, 100, 1, 1.0)
    board.sample({"gpu.utilization_ratio": 0.5}, 0.4)
    tab = show(board.url)
    tab.wait_for(path("watts/VDD_IN"))
    assert tab.run(path("watts/VDD_IN")).count("M") == 2
    assert tab.run("document.querySelector('#dla .stage').hidden") is True
    assert "Nothing known" in tab.run("document.querySelector('#dla').innerText")
    assert tab.run("document.querySelectorAll('[data-signal=\"watts/module\"]').length") == 0
    assert tab.run("document.querySelectorAll('#temperature path.curve').length") == 0


def test_runs_are_bands_and_rows_that_lead_to_the_run(busy, show):
    """A band says workload, device and outcome; the row has flags, and their meaning is told."""
    tab = show(busy.url)
    tab.wait_for(f"{BANDS}.length === 3")
    labels = tab.run(f"[...{BANDS}].map(a => a.getAttribute('aria-label')).join()")
    for words in ("resnet on dla0", "yolo on gpu", "now on dla1", "ok", "failed", "running"):
        assert words in labels
    runs = "document.querySelector('#runs').innerText"
    rows = tab.wait_for(f"{runs}.includes('no engine') && {runs}")
    assert "the daemon ended" not in rows
    assert "not_steady" in rows
    meanings = tab.wait_for("document.getElementById('meanings').innerText")
    assert "was still changing" in meanings
    tab.run("document.querySelector('input[value=\"300\"]').click()")
    tab.wait_for(f"{BANDS}.length === 2")  # one lies further back than five minutes
    tab.run(f"[...{BANDS}].find(a => a.textContent.includes('resnet')).focus()")
    tab.press("Enter", 13)
    tab.wait_for(
        "location.pathname.startsWith('/runs/0199') && document.querySelector('#latency, #facts')"
    )
    assert tab.complaints == []


def test_many_workloads_leave_room_for_the_charts(board, show):
    """Of many long names a few are in the legend, the rest are counted; no lane's name is cut."""
    devices = ("gpu", "dla0", "dla1", "cpu", "external")
    for number in range(40):
        name = f"detector-of-the-front-left-camera-quantised-to-int8-v{number:02}"
        board.finish(600 - 10 * number, 8, workload=name, device=devices[number % 5])
    tab = show(board.url, width=390)
    tab.wait_for(f"{BANDS}.length === 40")
    legend = tab.run("[...document.querySelectorAll('#lanes .legend li')].map(li => li.innerText)")
    assert len(legend) == 13
    assert legend[-1].startswith("and 28 more")
    names = "[...document.querySelectorAll('#lanes .tick')]"
    assert tab.run(f"{names}.map(text => text.textContent)") == sorted(devices)
    assert tab.run(f"{names}.every(text => text.scrollWidth <= text.clientWidth)")
    assert tab.run(AUDIT) == []


def test_charts_are_read_by_keyboard(busy, show):
    """Tab leads to a chart, arrow keys move through its time, and what is there is read out."""
    tab = show(busy.url)
    tab.wait_for(path("watts/module"))
    for _ in range(30):
        tab.press("Tab", 9)
        if tab.run("document.activeElement.matches('#power .stage')"):
            break
    assert tab.run("document.activeElement.matches('#power .stage')")
    tab.press("Home", 36)
    tab.press("End", 35)
    for _ in range(15):
        tab.press("ArrowLeft", 37)
    reading = tab.run("document.querySelector('[aria-live=polite]').textContent")
    assert "module" in reading
    assert "3.00" in reading  # before the board worked
    assert tab.run(told("module")) == "3.00 W"
    tab.press("Escape", 27)
    assert tab.run("document.querySelectorAll('.cursor').length") == 0
    wait_live(busy, tab, f"{told('module')} === '12.0 W'")


def test_every_control_and_picture_has_a_name(busy, show):
    """What a screen reader is given has no nameless button, link, field, table or picture."""
    tab = show(busy.url)
    tab.wait_for(f"{BANDS}.length === 3")
    roles = {"button", "link", "radio", "figure", "region", "table"}
    nameless, seen = [], set()
    for node in tab.call("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        if role in roles and not node["ignored"]:
            seen.add(role)
            if not node.get("name", {}).get("value"):
                nameless.append((role, node.get("properties")))
    assert nameless == []
    assert {"button", "link", "radio", "figure", "region", "table"} <= seen


def test_users_of_the_board_are_a_table_and_the_culprit_stands_in_the_row(board, show):
    """CPU and memory are those of the last look, DLA shares those of the last ten seconds."""
    watch = (
        ProcessUse("tegrascope", 9.0, 0.25, 50 << 20, 3, 0.0),
        ProcessUse("docker:0123456789ab/detector", 99.0, 1.5, 1 << 30, 1, 0.0),
    )
    board.interval = 60.0  # its samples are of the present for minutes, however slow the machine
    tab = show(board.url)
    tab.wait_for("document.getElementById('version').textContent")
    board.live.update(processes=watch)

    def traced(ago):
        busy = {"tegrascope": 0.25 * (60 - ago), "trtexec": 0.5 * (60 - ago)}
        return {f"dla.1.process_seconds.{name}": seconds for name, seconds in busy.items()}

    board.fill(traced, 60, 0.5, 0.5)
    board.finish(
        30, 10, quality=("foreign_dla_activity",), foreign_dla_processes=("python3 thief.py",)
    )
    rows = "[...document.querySelectorAll('#processes tbody tr')]"
    cells = f"{rows}.map(row => [...row.children].map(cell => cell.textContent).join('|'))"
    tab.wait_for(f"{rows}.length === 3")
    assert [one.replace("\u00a0", " ") for one in tab.run(cells)] == [
        "tegrascope × 3|0.25|50.0 MiB|25.0 %",
        "docker:0123456789ab/detector|1.50|1.00 GiB|–",
        "trtexec|–|–|50.0 %",
    ]
    assert tab.run(text("#processes-title")) == "Processes of this machine, not simulated"
    board.live.describe(simulated=False)
    tab.wait_for(f"{text('#processes-title')} === 'Processes'")
    tab.wait_for("document.querySelector('#runs').innerText.includes('python3 thief.py')")
    assert tab.run(AUDIT) == []
    assert tab.complaints == []


def test_daemon_that_does_not_read_processes_has_no_table_of_them(busy, show):
    tab = show(busy.url)
    tab.wait_for(f"{BANDS}.length === 3")
    assert tab.run("document.getElementById('processes-section').hidden") is True


EVIL = "<img src=x onerror=document.title='hacked'>\"'&amp;</script>"


def test_names_from_elsewhere_are_text(board, show):
    """Whatever a workload, a reason, a rail or a layer is called, it is shown as it is."""
    board.sample({f"rails.{EVIL}.instant_watts": 5.0, f"temperatures_celsius.{EVIL}": 50.0}, 1.0)
    placed = {"verdict": "mixed", "gpu_layers": (EVIL,), "dla_layers": ("a",)}
    made = board.finish(
        30,
        10,
        workload=EVIL,
        outcome="failed",
        reason=EVIL,
        quality=("fallback", "foreign_dla_activity"),
        built={"placement": placed, "notes": (EVIL,)},
        other_processes=({"name": EVIL, "dla_seconds": {"dla0": 1.0}},),
        foreign_dla_processes=(EVIL,),
    )
    board.live.update(processes=(ProcessUse(EVIL, 1.0, 1.0, 1, 1, 0.0),))
    board.live.describe(board=EVIL, module=EVIL)
    board.problem = board.note = EVIL
    tab = show(board.url)
    tab.wait_for(f"{BANDS}.length === 1 && document.querySelectorAll('#runs tbody tr').length")
    run = show(f"{board.url}runs/{made.run_id}")
    run.wait_for("document.querySelector('#placement')")
    for page in (tab, run):
        assert page.run("document.querySelectorAll('img, script[src], [onerror]').length") == 0
        assert page.run("document.querySelectorAll('script').length") == 1
        assert EVIL in page.run("document.body.textContent")
        assert page.run(AUDIT) == []
        assert page.complaints == []
        assert "x" not in {url.rpartition("/")[2] for url in page.asked}


def test_silence_is_told_and_ends(board, show):
    """A source that is down, a note, and a daemon that no longer answers are said in words."""
    board.sample(telemetry(0), 100.0)
    board.problem, board.note = "no fresh sample from tegrastats", "tegrastats shows no DLA"
    tab = show(board.url)
    tab.wait_for("document.getElementById('trouble').innerText.includes('no fresh sample')")
    tab.wait_for("document.getElementById('note').innerText.includes('shows no DLA')")
    tab.wait_for("document.getElementById('health').innerText.includes('tegrastats down')")
    board.problem = board.note = None
    tab.wait_for(
        "document.getElementById('trouble').hidden && document.getElementById('note').hidden"
    )


def test_daemon_that_dies_is_told_and_left_in_peace(board, show):
    """No source is up then, the title says so, no figure is of now, and it is asked less often."""
    board.interval = 60.0
    board.fill(telemetry, 60, 0.5, 0.5)
    board.live.set_workloads({"resnet": "dla0"})
    board.begin(5, workload="resnet")
    board.live.update(companions_up={"sysfs": False})
    tab = show(board.url)
    tab.wait_for("document.getElementById('health').innerText.includes('tegrastats up')")
    tab.wait_for("document.getElementById('troubles').innerText.includes('sysfs returns no data')")
    tab.wait_for("document.querySelectorAll('tr.running').length === 2")
    wait_live(board, tab, f"{told('module')} === '12.0 W'")
    tab.wait_for("document.getElementById('now').childElementCount > 0")
    board.stop()
    trouble = "document.getElementById('trouble').innerText"
    tab.wait_for(f"{trouble}.includes('Asking again every 4 s')")
    words = tab.run(trouble)
    assert words.startswith("The daemon does not answer (no connection) since ")
    assert tab.run("document.title") == "no answer · simulated · made-board · tegrascope"
    assert "tegrastats not known" in tab.run("document.getElementById('health').innerText")
    assert " up" not in tab.run("document.getElementById('health').innerText")
    tab.wait_for(f"{told('module')} === '–'")
    tab.wait_for("document.getElementById('now').childElementCount === 0")
    assert "sysfs returns no data since" in tab.run(text("#troubles"))
    assert tab.run(text("#as-of")).startswith("Troubles as of ")
    assert tab.run(text("#vitals")) == ""
    assert tab.run("document.querySelectorAll('tr.running').length") == 0
    assert tab.run("document.getElementById('workloads').innerText").count("not known") == 1
    assert tab.run("document.getElementById('runs').innerText").count("not known") == 1


def test_what_was_is_not_told_as_what_is(board, show):
    """After the last sample no figure is of now; the past is still there to be pointed at."""
    board.fill(telemetry, 60, 20, 1.0)
    tab = show(board.url)
    tab.wait_for("document.getElementById('cursor').innerText.startsWith('no sample since')")
    assert tab.run(told("module")) == "–"
    tab.run("document.querySelector('#power details').open = true")
    row = "document.querySelector('#power tbody tr')?.innerText.replace(/\\u00a0/g, ' ') ?? ''"
    assert tab.wait_for(row).split("\t")[:3] == ["module", "–", "12.0 W"]
    tab.run("document.querySelector('#power .stage').focus()")
    tab.press("End", 35)
    assert tab.run(told("module")) == "12.0 W"
    tab.press("Escape", 27)
    now = "document.getElementById('cursor').innerText.startsWith('figures of')"
    wait_live(board, tab, f"{now} && {told('module')} === '12.0 W'")


def test_page_works_behind_a_password_and_a_prefix(tmp_path, show):
    """All it asks for is relative to itself, and the browser sends what it was given."""
    expected = b"Basic " + base64.b64encode(b"me:secret")

    def guarded(app):
        async def answer(scope, receive, send):
            if scope["type"] != "http":
                return await app(scope, receive, send)
            given = dict(scope["headers"]).get(b"authorization")
            status, more = 404, []
            if given != expected:
                status, more = 401, [(b"www-authenticate", b"Basic realm=board")]
            elif scope["path"].startswith("/boards/one/"):
                return await app({**scope, "path": scope["path"][11:]}, receive, send)
            await send({"type": "http.response.start", "status": status, "headers": more})
            return await send({"type": "http.response.body", "body": b""})

        return answer

    board = Board(tmp_path, simulated=False, around=guarded)
    try:
        board.fill(telemetry, 30, 1, 1.0)
        made = board.finish(20, 10)
        where = board.url.replace("://", "://me:secret@") + "boards/one/"
        tab = show(where)
        tab.wait_for(f"{BANDS}.length === 1")
        assert tab.run("document.getElementById('simulated').hidden") is True
        tab.run(f"{BANDS}[0].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
        tab.wait_for(
            "document.querySelector('#facts') && document.querySelector('#power path.curve')"
        )
        assert tab.run("location.pathname") == f"/boards/one/runs/{made.run_id}"
        assert {
            url for url in tab.asked if "/boards/one/" not in url and url[:5] != "data:"
        } == set()
        assert tab.complaints == []
    finally:
        board.stop()


LEVELS = ("min", "mean", "p50", "p90", "p95", "p99", "p999", "max")


def figures(milliseconds, millijoules, gpu, **loads):
    """Return the fields of a run's report."""
    net = millijoules * 1e-3
    ratios = {"gpu": gpu} | loads
    return {
        "model": "models/net.onnx",
        "inferences": 100,
        "latency": {f"{name}_seconds": milliseconds * 1e-3 for name in LEVELS} | {"count": 100},
        "energy": {
            "net_joules_per_inference": net,
            "net_joules_per_inference_interval": {"low": net - 1e-4, "high": net + 1e-4},
        },
        "telemetry": {
            "samples": 9,
            "utilization": {n: {"mean_ratio": v, "max_ratio": v} for n, v in ratios.items()},
        },
    }


def text(element):
    """Return an expression for the words of an element."""
    return f"(document.querySelector({element!r})?.innerText ?? '').replaceAll('\\u00a0', ' ')"


OPEN_NOW = "document.querySelector('#more-now').open = true"


@pytest.mark.parametrize("width", [1280, 1000, 390])
def test_card_answers_dla_or_gpu(board, show, width):
    """It has the figures by device, and who is better; a model on one device has no answer."""
    for number, wobble in enumerate((0.0, 0.01, -0.01)):
        fields = figures(2 + wobble, 30 + wobble, 0.9)
        board.finish(500 + number, 9, workload="a", device="gpu", **fields)
        fields = figures(5 + wobble, 15 + wobble, 0.1, **{"dla0:ftrace": 0.8})
        board.finish(400 + number, 9, workload="b", device="dla0", **fields)
    board.finish(300, 9, workload="c", device="gpu", **{**figures(1, 2, 0.5), "model": "one.onnx"})
    tab = show(board.url, width=width)
    card = " ".join(tab.wait_for(text(".card")).split())
    for words in (
        "On the DLA: 50 % less net energy, 2.5 times the time, frees 80.0 points of the GPU",
        "Time 3.00 ms more on the DLA (",
        "Net energy (above idle) 15.0 mJ less on the DLA (",
        "5.00 ms",
        "15.0 mJ",
        "busy 80.0 %",
        "3 runs",
    ):
        assert words in card
    right = "document.querySelector({!r}).getBoundingClientRect().right"
    assert tab.run(right.format(".card table")) <= tab.run(right.format(".card"))
    assert "no good run on DLA0." in tab.run(text(".card:nth-child(2)"))
    assert tab.run(AUDIT) == []
    assert tab.complaints == []


@pytest.mark.parametrize(
    ("gpu", "dla", "words"),
    [
        (
            (3, 67, 0.9),
            (17, 124, 0.01),
            "On the DLA: 85 % more net energy, 5.7 times the time, frees 89.0 points of the GPU",
        ),
        (
            (5, 67, 0.9),
            (4, 30, 0.0),
            "On the DLA: 55 % less net energy, 20 % less time, frees 90.0 points of the GPU",
        ),
        ((3, 30, 0.5), (3, 30, 0.5), "No difference between DLA and GPU is shown"),
    ],
)
def test_card_begins_with_what_its_verdicts_say_together(board, show, gpu, dla, words):
    for number, wobble in enumerate((0.0, 0.01, -0.01)):
        for ago, device, (each, joules, load) in ((500, "gpu", gpu), (400, "dla0", dla)):
            fields = figures(each + wobble, joules + wobble, load)
            board.finish(ago + number, 9, workload=device, device=device, **fields)
    tab = show(board.url)
    card = tab.wait_for(text(".card"))
    assert tab.run(text(".card .conclusion")) == words
    assert ("no difference shown" in card) == (gpu == dla)


def test_heading_says_what_will_stand_there_and_when(board, show):
    """Before the first run, and until three runs each, a card counts the runs."""
    board.sample(telemetry(0))
    labels = {"model": "net.onnx", "batch": "1"}
    board.live.set_workloads({"a": "gpu", "b": "dla0"}, {"a": labels, "b": labels})
    board.due = {"a": 200.0, "b": 45.0}
    tab = show(board.url)
    card = tab.wait_for(text(".card"))
    assert "Here will stand, after 3 runs on each: energy, time and GPU load" in card
    assert "GPU 0 of 3 runs, next in 3 min" in card
    assert "DLA0 0 of 3 runs, next in 4" in card
    for number in range(3):
        board.finish(90 - number, 1, workload="a", device="gpu", **figures(3, 67, 0.9))
        if number < 2:
            board.finish(80 - number, 1, workload="b", device="dla0", **figures(17, 124, 0.0))
    for words in ("DLA0 2 of 3", "GPU 3 of 3 runs;"):
        tab.wait_for(f"{text('.card')}.includes({words!r})")
    board.finish(70, 1, workload="b", device="dla0", **figures(17, 124, 0.0))
    tab.wait_for(f"{text('.card .conclusion')}.startsWith('On the DLA: 85 % more net energy')")
    assert "of 3 runs" not in tab.run(text(".card"))
    assert tab.run(AUDIT) == []


def test_board_without_a_dla_has_no_words_about_one(board, show):
    """Thor has none: nothing is missing there, and what NVML gives is named."""
    board.live.describe(board="NVIDIA Jetson AGX Thor Developer Kit", module="p3834-0008")
    values = {
        "ram.used_bytes": 2.0**30,
        "gpu.utilization_ratio": 0.9,
        "gpu.utilization_by_nvml": 1.0,
        "gpu.power_watts": 48.5,
        "process.gpu_memory_bytes.ollama": 3.0 * 2**30,
        "process.gpu_memory_bytes.other": 1.0 * 2**30,
    }
    board.interval = 60.0
    board.fill(lambda _: values, 30, 0.5, 0.5)
    board.live.update(signal_sources={"tegra_gpu_utilization_ratio": "nvml"})
    board.finish(20, 9, workload="a", device="gpu", **figures(2, 30, 0.9))
    tab = show(board.url)
    assert "2.00 ms" in tab.wait_for(text(".card"))
    now = " ".join(tab.wait_for(f"({OPEN_NOW}, {text('#now')})").split())
    assert "GPU load by NVML" in now
    assert "GPU power by NVML 48.5 W" in now
    assert "GPU memory 4.00 GiB ollama 3.00 GiB, other 1.00 GiB" in now
    assert tab.run(path("ratio/gpu")).startswith("M")
    assert "DLA" not in tab.run(text("body"))
    assert tab.run(AUDIT) == []
    assert tab.complaints == []


def test_danger_is_marked(board, show):
    """A zone near its shutdown and throttling have lines; budget and full disk are coloured."""
    board.interval = 60.0
    board.fill(
        lambda ago: {
            **telemetry(0),
            "temperatures_celsius.cpu": 103.0,
            "temperatures_celsius.gpu": 90.0,
            "throttle.gpu_thermal.events": 5000.0 + (ago < 100) + (ago < 50),
            "throttle.gpu_thermal.active": 1.0,
        },
        200,
        1,
        1.0,
    )
    trips = {("cpu", "critical"): 104.5, ("gpu", "critical"): 104.5}
    limits = Limits(power_watts=5)
    board.live.update(trips_celsius=trips, limits=limits, store_free_bytes=0)
    tab = show(board.url)
    troubles = tab.wait_for(text("#troubles"))
    # One cause is one line: its parts are a click away.
    assert "critical" in troubles.lower()
    assert "cpu is at 103.0 °C, 1.5 °C below shutdown (104.5 °C) since " in troubles
    assert "2 signs of heat" in troubles
    assert tab.run("document.querySelector('#troubles a').hash") == "#temperature"
    # The other signs of a critical trouble are shown without a click.
    assert tab.run("document.querySelector('#troubles details').open")
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC.\d\d:\d\d, a moment ago", troubles)
    assert "throttled by gpu_thermal since " in tab.run(text("#troubles"))
    hottest = " ".join(tab.run(text("#vitals li:last-child.bad")).split())
    assert hottest == "hottest: cpu 103.0 °C shuts down at 104.5 °C"
    assert tab.run("document.title").startswith("⚠ ")
    tab.wait_for(path("celsius/cpu"))
    tab.run("document.querySelector('#temperature .stage').focus()")
    tab.press("End", 35)
    for zone, level in (("cpu", "bad"), ("gpu", "warn"), ("zone5", "")):
        tab.wait_for(f"{legend(zone)}.className === {level!r}")
    for chart in ("power", "temperature"):
        tab.wait_for(f"document.querySelectorAll('#{chart} .mark.bad').length === 1")
    assert "shutdown 104.5 °C" in tab.run(text("#temperature figcaption"))
    assert tab.run("document.querySelector('#health .bad').innerText") == "0\u00a0GiB free"
    assert "store down" in tab.run(text("#health"))
    tile = tab.wait_for(
        "[...document.querySelectorAll('#danger .warn')].map(li => li.innerText).join()"
    )
    assert "throttled by gpu_thermal" in tile
    assert "2 times in 15 min, the last" in tile.replace("\u00a0", " ")
    assert tab.run(AUDIT) == []


def test_trouble_names_its_first_sign(board, show):
    """A board that was throttled long before it is near its shutdown."""
    board.interval = 60.0
    board.live.update(trips_celsius={("cpu", "critical"): 104.5})
    held = telemetry(0) | {"throttle.gpu_thermal.active": 1.0, "temperatures_celsius.cpu": 90.0}
    board.sample(held)
    tab = show(board.url)
    tab.wait_for(f"{text('#troubles')}.includes('throttled by gpu_thermal since ')")
    assert ";" not in tab.run(text("#troubles"))
    board.sample(held | {"temperatures_celsius.cpu": 103.0})
    tab.wait_for(f"{text('#troubles')}.includes('cpu is at 103.0')")
    line = tab.run(text("#troubles")).splitlines()[0]
    assert re.search(r"shutdown .* since .*; throttled by gpu_thermal since \d\d:\d\d:\d\d ", line)
    assert tab.run("document.querySelector('#troubles details').open")


def test_throttling_that_is_over_is_in_the_first_screen(board, show):
    board.interval = 60.0
    counted = {"throttle.gpu_thermal.active": 0.0}
    board.fill(
        lambda ago: telemetry(0) | counted | {"throttle.gpu_thermal.events": 5.0 + (ago < 50)},
        200, 1, 1.0,
    )  # fmt: skip
    tab = show(board.url)
    assert "once in 15 min" in tab.wait_for(text("#danger")).replace("\u00a0", " ")
    assert tab.run("document.querySelector('#danger').getBoundingClientRect().bottom") < 400
    assert tab.run(text("#troubles")) == ""


def test_good_run_with_flags_is_in_doubt(board, show):
    """Its workload says so, and the card has the meaning of the flag and the workload."""
    board.finish(40, 9, workload="sure", device="gpu", **figures(3, 67, 0.9))
    flagged = figures(3, 67, 0.9) | {"quality": ("not_steady",)}
    board.finish(20, 9, workload="unsure", device="dla0", **flagged)
    tab = show(board.url)
    rows = "[...document.querySelectorAll('#workloads tbody tr')].map(r => r.cells[2].innerText)"
    states = tab.wait_for(f"{rows}.length === 2 && {rows}")
    assert states == ["good", "good, figures in doubt not_steady"]
    card = " ".join(tab.wait_for(text(".card")).split())
    assert "DLA0 unsure, 1 run" in card
    assert "Reasons for doubt not_steady Rate, latency, a clock or a temperature was still" in card
    assert "at the end of the run. DLA0: 1 of 1 runs" in card
    assert tab.run(AUDIT) == []


def test_page_goes_on_without_a_store(busy, show):
    """Charts come from memory; the daemon answers, so its silence is not told."""
    busy.store.path.unlink()
    tab = show(busy.url)
    tab.wait_for("document.getElementById('trouble').innerText.includes('store')")
    tab.wait_for(path("ratio/gpu"))
    assert "does not answer" not in tab.run("document.getElementById('trouble').innerText")
    assert "no answer" not in tab.run("document.title")


def test_limit_far_away_is_told_and_not_drawn(busy, show):
    busy.live.update(limits=Limits(power_watts=60))
    tab = show(busy.url)
    tab.wait_for(f"{text('#power figcaption')} === 'Power, W · configured budget 60.0 W'")
    assert tab.run("document.querySelectorAll('#power .mark').length") == 0


def test_board_now_has_memory_cores_clocks_and_fan(board, show):
    values = {
        "ram.used_bytes": 7.8 * 2**30,
        "ram.total_bytes": 8.0 * 2**30,
        "ram.largest_free_block_bytes": 4.0 * 2**20,
        "swap.used_bytes": 1.0 * 2**30,
        "swap.total_bytes": 4.0 * 2**30,
        "gpu_memory.used_bytes": 3.0 * 2**30,
        "gpu_memory.total_bytes": 24.0 * 2**30,
        "rails.VDD_IN.volts": 5.016,
        "rails.VDD_IN.lowest_volts": 4.936,
        "rails.VDD_IN.amperes": 1.55,
        "cpu.0.utilization_ratio": 0.5,
        "cpu.0.online": 1.0,
        "cpu.1.online": 0.0,
        "gpu.frequency_hertz.0": 1.3e9,
        "emc.frequency_hertz": 3.2e9,
        "fans.pwm-fan.speed_ratio": 0.4,
        "engines.NVDEC.on": 1.0,
    }
    board.interval = 60.0
    board.fill(lambda _: values, 30, 0.5, 0.5)
    tab = show(board.url)
    now = tab.wait_for(f"({OPEN_NOW}, {text('#now')})")
    now += tab.run(text("#danger"))
    for words in (
        "7.80 GiB of 8.00 GiB",
        "205 MiB available",
        "largest free block 4.00 MiB",
        "1.00 GiB of 4.00 GiB",
        "GPU's own memory 3.00 GiB of 24.0 GiB",
        "VDD_IN 5.02 V 1.55 A, lowest 4.94 V",
        "1 of 2 online",
        "GPU clock 1.30 GHz",
        "EMC clock 3.20 GHz",
        "pwm-fan 40.0 %",
        "engines on NVDEC",
    ):
        assert words in " ".join(now.split()), words
    assert tab.run("document.querySelector('#danger li').className") == "bad"
    assert tab.run(path("bytes/ram")).startswith("M")
    assert tab.run(path("bytes/gpu")).startswith("M")
    assert tab.run(path("hertz/gpu")).startswith("M")


def test_memory_that_the_gpu_shares_is_told_beside_the_rest(board, show):
    values = {
        "ram.used_bytes": 5.0 * 2**30,
        "ram.total_bytes": 8.0 * 2**30,
        "gpu_memory.used_bytes": 3.0 * 2**30,
    }
    board.fill(lambda _: values, 30, 0.5, 0.5)
    tab = show(board.url)
    now = tab.wait_for(f"({OPEN_NOW}, {text('#now')})")
    assert "3.00 GiB available, 3.00 GiB held by the GPU" in " ".join(now.split())
    assert "own memory" not in now


def test_memory_by_owner_has_a_chart_only_where_it_is_known(board, show):
    board.fill(lambda _: {"ram.used_bytes": 5.0 * 2**30}, 30, 3.0, 0.5)
    tab = show(board.url)
    tab.wait_for(path("bytes/ram"))
    assert tab.run("document.getElementById('owners').hidden") is True
    board.fill(lambda _: {"memory.not_attributed_bytes": 2.0**30}, 2.5, 0.0, 0.5)
    tab.wait_for(path("bytes/owner/not_attributed"))
    assert tab.run("document.getElementById('owners').hidden") is False


def test_time_axis_begins_with_the_data(board, show):
    """A daemon that has just begun has no empty quarter of an hour."""
    board.fill(telemetry, 60, 0.5, 0.5)
    tab = show(board.url)
    first = float(tab.wait_for(f"{path('ratio/gpu')}.match(/M([\\d.]+)/)[1]"))
    width = tab.run("document.querySelector('#power svg').clientWidth")
    assert first < 56 + 0.1 * width


def test_short_recording_says_when_it_began(board, show):
    """Its axis is shorter than the chosen time; no label of it is pushed from its place."""
    board.fill(telemetry, 60, 0.5, 0.5)
    tab = show(board.url)
    tab.wait_for(f"{text('#range')}.startsWith('recording began ')")
    tab.wait_for(path("ratio/gpu"))
    labels = "[...document.querySelectorAll('#power svg text.time')]"
    places = tab.run(f"{labels}.map(one => Number(one.getAttribute('x')))")
    steps = [b - a for a, b in itertools.pairwise(places)]
    assert len(steps) > 1
    assert max(steps) - min(steps) < 1
    width = tab.run("document.querySelector('#power svg').clientWidth")
    ends = f"{labels}.map(one => one.getBBox().x + one.getBBox().width)"
    assert max(tab.run(ends)) <= width + 1


def test_sensor_and_core_without_power_are_off(board, show):
    """A share of time with power beside a load would be read as a load."""
    board.interval = 60.0
    powered = {"dla.1.powered_ratio": 0.0}
    board.fill(lambda _: telemetry(0) | powered | {"temperatures_celsius.cv0": 70.0}, 30, 10, 1.0)
    board.fill(lambda _: telemetry(0) | powered, 9, 0, 1.0)
    tab = show(board.url)
    assert "DLA1 idle powered down" in " ".join(tab.wait_for(text("#vitals")).split())
    tab.wait_for(path("celsius/cv0"))
    tab.run("document.querySelector('#temperature .stage').focus()")
    tab.press("End", 35)
    tab.wait_for(f"{told('cv0')} === 'sensor off'")


def test_lines_in_one_place_can_both_be_seen(board, show):
    board.fill(
        lambda ago: telemetry(0) | {"temperatures_celsius.tj": 45.0 + 0.04 * (ago % 2)}, 30, 0, 1.0
    )
    tab = show(board.url)
    tab.wait_for(path("celsius/tj"))
    same = "document.querySelectorAll('#temperature path.curve.dashed').length"
    assert tab.run(same) == 1


def test_workloads_have_a_row_and_a_filter(board, show):
    """A row has the last good run, failures in a row and the next start."""
    board.fill(telemetry, 30, 1, 1.0)
    board.finish(200, 9, workload="good-one", device="gpu")
    for ago in (90, 60):
        board.finish(ago, 3, workload="bad-one", device="dla0", outcome="failed", reason="x")
    board.due = {"good-one": 130.0}
    tab = show(board.url)
    rows = "[...document.querySelectorAll('#workloads tbody tr')].filter(r => r.checkVisibility())"
    complete = f"{rows}.length === 2 && {rows}.some(r => r.innerText.includes(' ago'))"
    told = tab.wait_for(f"{complete} && {rows}.map(r => r.innerText)")
    bad, good = (" ".join(one.split()) for one in told)  # trouble comes first
    assert good.startswith("good-one gpu good 3 min ago")
    assert "in 2 min" in good
    assert bad.startswith("bad-one dla0 failing none yet – – 2")
    tab.run("document.getElementById('filter').focus()")
    tab.call("Input.insertText", text="bad")
    tab.wait_for(f"{rows}.length === 1")
    assert tab.run(text("#filtered")) == "1 of 2 workloads"
    tab.wait_for("document.querySelectorAll('#runs tbody tr').length === 2")


def test_forty_failing_workloads_are_one_line_and_ten_rows(board, show):
    """The line has the time, the reason and the last failed run; a click shows all rows."""
    board.fill(telemetry, 30, 1, 1.0)
    for number in range(40):
        for ago in (300, 200):
            board.finish(
                ago - number, 1, workload=f"w{number:02}", outcome="failed", reason="no engine"
            )
    board.begin(5, workload="w00")
    tab = show(board.url, width=390)
    troubles = tab.wait_for(text("#troubles"))
    assert troubles.count("no engine") == 1
    assert "40 workloads fail" in troubles
    rows = "document.querySelectorAll('#workloads tbody tr')"
    tab.wait_for(f"{rows}.length === 10")
    assert tab.run(text("#filtered")) == "10 of 40 workloads"
    assert "failing, runs again" in tab.run(text("#workloads"))
    assert tab.run("getComputedStyle(document.querySelector('#workloads')).overflowY") == "visible"
    tab.run("document.querySelector('#troubles details').open = true")
    links = "[...document.querySelectorAll('#troubles li li a')].map(a => a.textContent)"
    assert tab.run(links) == ["last failed run"] * 40
    assert tab.run(AUDIT) == []
    tab.run("document.getElementById('more-workloads').click()")
    tab.wait_for(f"{rows}.length === 40")
    # A page that shows it anew each second leaves open what the reader opened.
    assert tab.run("document.querySelector('#troubles details').open")


def test_board_in_four_figures_comes_first(board, show):
    board.interval = 60.0
    board.fill(telemetry, 30, 1, 1.0)
    board.live.update(trips_celsius={("zone5", "critical"): 104.5})
    tab = show(board.url)
    words = " ".join(tab.wait_for(text("#vitals")).split())
    assert words == (
        "module 12.0 W GPU 25.0 % DLA0 75.0 % busy hottest: zone5 45.0 °C shuts down at 104.5 °C"
    )
    assert tab.run("document.querySelector('#vitals').getBoundingClientRect().bottom") < 300


def test_lanes_have_all_runs_of_the_time_shown(board, show):
    """Eighty short runs of a quarter of an hour are all there, and no skipped one."""
    for number in range(80):
        board.finish(730 - 9 * number, 5, workload=f"w{number % 3}", device="dla0")
        board.finish(729 - 9 * number, 0, workload="s", outcome="skipped", reason="busy")
    tab = show(board.url)
    tab.wait_for(f"{BANDS}.length === 80")
    assert tab.run("document.querySelectorAll('#lanes .unknown:not([hidden])').length") == 0


COLOURS = """[...document.querySelectorAll('#lanes a')].map(a => [
  a.textContent, getComputedStyle(a).getPropertyValue('--shade').trim(),
  getComputedStyle(a).getPropertyValue('--hatch').trim()])"""


def lab(colour):
    """Return a colour as CIE L*a*b*, in which distances are those of the eye."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return (116 * y - 16, 500 * (x - y), 200 * (y - z))


def test_twelve_workloads_have_colours_of_their_own_and_more_have_hatches(board, show):
    for number in range(36):
        board.finish(800 - 20 * number, 15, workload=f"w{number:02}", device="gpu")
    tab = show(board.url)
    found = {name: (fill, hatch) for name, fill, hatch in tab.wait_for(
        f"document.querySelectorAll('#lanes a').length === 36 && {COLOURS}"
    )}  # fmt: skip
    assert len(set(found.values())) == 36
    plain = [fill for fill, hatch in found.values() if hatch == "none"]
    assert len(plain) == 12
    assert min(dist(lab(a), lab(b)) for a, b in combinations(plain, 2)) > 20


def test_runs_do_not_cover_the_lines_of_charts(busy, show):
    """A run is a strip above the chart; the one that is pointed at fills it."""
    tab = show(busy.url)
    bands = "[...document.querySelectorAll('#power .band')]"
    highest = f"Math.max(...{bands}.map(r => r.getBBox().height))"
    tab.wait_for(f"{highest} > 0")
    assert tab.run(highest) < 8
    tab.run(f"{BANDS}[0].focus()")
    tab.wait_for(f"{highest} > 100")


def test_a_lane_is_one_stop_of_the_keyboard(board, show):
    """Arrow keys move between its runs, and the skip link leads past all."""
    for number in range(10):
        board.finish(800 - 60 * number, 20, device=("gpu", "dla0")[number % 2])
    tab = show(board.url)
    tab.wait_for(f"{BANDS}.length === 10")
    tab.press("Tab", 9)
    tab.wait_for("document.activeElement.matches('.skip')")
    tab.press("Enter", 13)
    tab.wait_for("document.activeElement.id === 'charts-title'")
    assert tab.run("document.querySelectorAll('#lanes a[tabindex=\"0\"]').length") == 2
    tab.run("document.querySelector('#lanes a[tabindex=\"0\"]').focus()")
    label = "document.activeElement.getAttribute('aria-label')"
    newest = tab.run(label)
    tab.press("ArrowLeft", 37)
    before = tab.wait_for(f"{label} !== {newest!r} && {label}")
    assert before.split(",")[0] == newest.split(",")[0]  # of the same workload and device
    tab.press("ArrowRight", 39)
    tab.wait_for(f"{label} === {newest!r}")


def test_page_of_forty_workloads_is_short_on_a_phone(board, show):
    board.fill(telemetry, 60, 1, 1.0)
    for number in range(100):
        fields = {**figures(1, 2, 0.5), "model": f"net-{number % 40}.onnx"}
        board.finish(
            880 - 8 * number, 5, workload=f"perception-{number % 40:02}", device="gpu", **fields
        )
    tab = show(board.url, width=390)
    tab.wait_for(
        "document.querySelectorAll('#runs tbody tr').length > 3 && document.querySelector('.card')"
    )
    assert tab.run("document.documentElement.scrollHeight") < 6500
    assert tab.run(AUDIT) == []


PAST = 36_000.0


@pytest.fixture
def long_ago(board):
    """A board whose store has two hot minutes of ten hours ago, with a failed run in them."""
    hot = {"temperatures_celsius.cpu": 98.0, "gpu.utilization_ratio": 0.75}
    board.fill(lambda _: telemetry(0) | hot, PAST + 60, PAST - 60, 1.0)
    board.finish(PAST + 10, 20, workload="night", outcome="failed", reason="no engine")
    board.timeline.seal()
    board.fill(telemetry, 60, 0.5, 0.5)
    board.store.flush()
    return board


def link_to(board, ago, seconds):
    middle = CLOCK.wall_ns() / 1e9 - ago
    begin, end = (
        datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        for at in (middle - seconds / 2, middle + seconds / 2)
    )
    return f"{board.url}#time={begin}/{end}"


@pytest.mark.parametrize("width", [1280, 390])
def test_link_shows_a_time_that_only_the_store_has(long_ago, show, width):
    """The run of that time is there, and its figures are read by keyboard."""
    tab = show(link_to(long_ago, PAST, 120), width=width)
    tab.wait_for(path("celsius/cpu"))
    band = tab.wait_for(f"{BANDS}.length === 1 && {BANDS}[0].getAttribute('aria-label')")
    assert band.startswith("night on dla0")
    assert band.endswith("failed")
    tab.run("document.querySelector('#temperature .stage').focus()")
    tab.press("End", 35)
    assert tab.run(told("cpu")) == "98.0 °C"
    for _ in range(3):  # each by half of the time shown
        tab.press("PageUp", 33)
    tab.wait_for(f"{BANDS}.length === 0")
    assert "#time=" in tab.run("location.hash")
    tab.run("document.getElementById('pause').click()")
    tab.wait_for(f"{BANDS}.length === 0 && {path('watts/module')}.startsWith('M')")
    assert tab.run("location.hash") == ""
    assert tab.run(AUDIT) == []
    assert tab.complaints == []


def test_charts_are_dragged_widened_and_moved(long_ago, show):
    """A drag moves the time shown, the wheel with Ctrl widens it, and keys do both."""
    tab = show(long_ago.url)
    tab.wait_for(path("watts/module"))
    stage = "document.querySelector('#power .stage').getBoundingClientRect()"
    tab.run("document.querySelector('#power').scrollIntoView()")
    left, top = tab.run(f"{stage}.left"), tab.run(f"{stage}.top")

    def mouse(kind, x, **more):
        place = {"x": left + x, "y": top + 60}
        tab.call("Input.dispatchMouseEvent", type=kind, button="left", **place, **more)

    def shown():
        found = re.findall(r"[0-9T:-]{19}Z", tab.run("decodeURIComponent(location.hash)"))
        begin, end = (datetime.fromisoformat(one[:-1]).timestamp() for one in found)
        return begin, end

    mouse("mousePressed", 200, clickCount=1)
    mouse("mouseMoved", 300)
    mouse("mouseReleased", 300, clickCount=1)
    tab.wait_for("location.hash.startsWith('#time=')")
    begin, end = shown()
    mouse("mouseWheel", 200, deltaX=0, deltaY=500, modifiers=2)
    tab.wait_for(f"Math.abs({2 * (end - begin)} - ({LENGTH})) < 3")
    tab.run("document.querySelector('#power .stage').focus()")
    tab.press("+")
    tab.wait_for(f"Math.abs({end - begin} - ({LENGTH})) < 3")
    later = shown()
    tab.press("PageUp", 33)
    assert shown()[0] < later[0] - 10
    tab.press("Escape", 27)
    tab.press("Escape", 27)
    tab.wait_for("location.hash === ''")
    assert tab.complaints == []


LENGTH = (
    "(([a, b]) => (Date.parse(b) - Date.parse(a)) / 1000)"
    "(decodeURIComponent(location.hash).slice(6).split('/'))"
)


def test_day_is_one_of_the_times_to_choose(long_ago, show):
    """The two minutes of ten hours ago are in it, and the moment can be typed."""
    tab = show(long_ago.url)
    tab.wait_for(path("watts/module"))
    tab.run("document.querySelector('#spans input[value=\"86400\"]').click()")
    tab.wait_for(f"{path('celsius/cpu')} && {BANDS}.length === 1")
    tab.run("document.querySelector('#spans input[value=\"300\"]').click()")
    moment = tab.run(
        f"(d => (d.setMinutes(d.getMinutes() - d.getTimezoneOffset()), d.toISOString()))"
        f"(new Date(Date.now() - {PAST} * 1000)).slice(0, 19)"
    )
    tab.run(
        f"(m => (m.value = '{moment}', m.dispatchEvent(new Event('change'))))"
        "(document.getElementById('moment'))"
    )
    tab.wait_for(f"{BANDS}.length === 1 && {text('#range')}.includes(' to ')")
    assert tab.complaints == []
