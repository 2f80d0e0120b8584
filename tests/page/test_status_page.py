"""The status page in a real browser: what is known is drawn, as it comes, for every reader."""

import base64
from pathlib import Path

import pytest

from .board import Board

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


def told(words: str) -> str:
    """Return an expression for the value in the legend behind these words."""
    buttons = "[...document.querySelectorAll('.legend button')]"
    found = f"{buttons}.find(b => b.textContent.includes({words!r}))"
    return f"({found}?.querySelector('b').textContent ?? '').replace('\\u00a0', ' ')"


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
        assert tab.run(path(signal)).startswith("M"), signal
    for details in range(4):
        tab.run(f"document.querySelectorAll('#charts details')[{details}].open = true")
    tab.wait_for("document.querySelectorAll('#charts tbody tr').length > 8")
    assert tab.run(AUDIT) == []
    assert tab.complaints == []
    assert [url for url in tab.asked if "/api/v1/" not in url and url[:5] != "data:"] == [busy.url]
    assert "these figures are of no real board" in tab.run("document.body.innerText")
    assert tab.run("document.title") == "simulated · made-board · tegrascope"
    paper = tab.run("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")


def test_figures_are_those_of_the_samples(busy, show):
    """Legend and table tell what was measured: the module is the sum of its rails."""
    tab = show(busy.url)
    tab.wait_for(f"{told('module')} === '12.0 W'")
    assert tab.run(told("VDD_CPU_CV")) == "4.00 W"
    assert tab.run(told("CPU")) in ("20 %", "4.00 W")
    assert tab.run(told("DLA0 busy (ftrace)")) == "75 %"
    assert tab.run(told("DLA0 on (gate)")) == "100 %"
    tab.run("document.querySelector('#power details').open = true")
    row = "document.querySelector('#power tbody tr')?.innerText.replace(/\\u00a0/g, ' ') ?? ''"
    words = tab.wait_for(row)
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
    tab.wait_for(f"{told('VDD_GPU_SOC')} === '8.00 W'")
    before = tab.run(path("watts/VDD_GPU_SOC"))
    board.fill(lambda _: {**telemetry(0), "rails.VDD_GPU_SOC.instant_watts": 16.0}, 0.01, 0, 0.001)
    tab.wait_for(f"parseFloat({told('VDD_GPU_SOC')}) > 8")
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
    rows = tab.run("document.querySelector('#runs').innerText")
    assert "no engine" in rows
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
    names = "[...document.querySelectorAll('#lanes text.tick')]"
    assert tab.run(f"{names}.map(text => text.textContent)") == sorted(devices)
    assert tab.run(f"Math.min(...{names}.map(text => text.getBBox().x))") >= 0
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
    assert tab.run(told("module")) == "12.0 W"
    assert tab.run("document.querySelectorAll('.cursor').length") == 0


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
        quality=("fallback",),
        built={"placement": placed, "notes": (EVIL,)},
    )
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
    assert "shows no DLA" in tab.run("document.getElementById('note').innerText")
    assert "tegrastats down" in tab.run("document.getElementById('health').innerText")
    board.problem = board.note = None
    tab.wait_for(
        "document.getElementById('trouble').hidden && document.getElementById('note').hidden"
    )
    board.stop()
    tab.wait_for("document.getElementById('trouble').innerText.includes('No answer')")


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
    board.sample(telemetry(0))
    tab.press("Escape", 27)
    tab.wait_for("document.getElementById('cursor').innerText.startsWith('figures of')")
    assert tab.run(told("module")) == "12.0 W"


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
