"""A headless Chromium, told what to do over its DevTools pipe: no driver and no library."""

import base64
import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_SECONDS = 120.0
# DevTools are read from 3 and written to 4; sh sets these up, the browser says nothing else.
_PIPES = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    # Not as root, in a container, does it have a sandbox; it sees nothing but our own page.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-lcd-text",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
)
# While a page loads, what it will have is not there.
_SOON = """(() => { try { const found = (%s); return found instanceof Node || found; }
  catch { return false; } })()"""


def program() -> "str | None":
    """Return the browser, where there is one."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One browser process with as many tabs as are asked for."""

    def __init__(self) -> None:
        self._home = tempfile.mkdtemp(prefix="tegrascope-browser-")
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._listeners: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._number = 0
        self._process = subprocess.Popen(
            ["sh", "-c", _PIPES, str(program()), *_FLAGS, f"--user-data-dir={self._home}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "HOME": self._home},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while data := os.read(self._process.stdout.fileno(), 1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers[message["id"]].put(message)
                elif message.get("sessionId") in self._listeners:
                    self._listeners[message["sessionId"]](message)

    def call(self, method: str, session: "str | None" = None, **params: Any) -> dict[str, Any]:
        """Ask for something and return what came back."""
        self._number += 1
        number, self._answers[number] = self._number, queue.SimpleQueue()
        order = {"id": number, "method": method, "params": params}
        if session is not None:
            order["sessionId"] = session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\0")
        self._process.stdin.flush()
        answer = self._answers[number].get(timeout=_PATIENCE_SECONDS)
        del self._answers[number]
        assert "error" not in answer, (method, answer)
        return dict(answer["result"])

    def open(self, url: str, **look: Any) -> "Tab":
        """Open a page in a tab of its own; ``look`` is as for ``Tab.look``."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session, target)
        self._listeners[session] = tab.hear
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            tab.call(f"{domain}.enable")
        tab.look(**look)
        tab.call("Page.navigate", url=url)
        return tab

    def close(self) -> None:
        """End it and all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._reader.join(60)
        shutil.rmtree(self._home, ignore_errors=True)


class Tab:
    """A page.

    Attributes:
        complaints: What the console showed as error or warning, and what was thrown.
        asked: Every URL that was asked for.
    """

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target
        self.complaints: list[str] = []
        self.asked: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask DevTools something about this page."""
        return self._browser.call(method, self._session, **params)

    def hear(self, message: dict[str, Any]) -> None:
        """Take note of what the page does."""
        method, params = message["method"], message["params"]
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])

    def look(self, width: int = 1280, height: int = 900, *, dark: bool = False) -> None:
        """Make the screen so many pixels, light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, code: str) -> Any:
        """Return the value of a JavaScript expression, of a promise what it comes to."""
        told = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait_for(self, code: str, seconds: float = _PATIENCE_SECONDS) -> Any:
        """Return the value of an expression as soon as it is true."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            value = self.run(_SOON % code)
            if value:
                return value
            time.sleep(0.05)
        text = self.run("document.body.innerText")
        raise AssertionError(f"waited {seconds} s in vain for {code}: {self.complaints} {text}")

    def press(self, key: str, code: "int | None" = None) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            more = {} if code is None else {"windowsVirtualKeyCode": code}
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more, **text)

    def picture(self, path: Path, height: int) -> None:
        """Save the upper part of the page as PNG."""
        width = self.run("innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        told = self.call(
            "Page.captureScreenshot",
            format="png",
            clip=clip,
            captureBeyondViewport=True,
            optimizeForSpeed=True,
        )
        path.write_bytes(base64.b64decode(told["data"]))

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)
