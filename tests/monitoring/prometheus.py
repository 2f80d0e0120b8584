"""Prometheus and Alertmanager as they are installed, and who is told of alerts."""

import http.server
import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.processes import PATIENCE_SECONDS

from .servers import Server, needs_alertmanager, needs_prometheus, wait_for

__all__ = ["Alertmanager", "Monitoring", "Prometheus", "Webhook", "monitoring",
           "needs_alertmanager", "needs_prometheus", "wait_for"]  # fmt: skip

Point = tuple[float, float]


def scrape_config(*targets: str, **settings: Any) -> dict[str, Any]:
    """Return a configuration that scrapes each second, and the settings given beside it."""
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": "tegrascope", "static_configs": [{"targets": [*targets]}]}],
        **settings,
    }


class Prometheus(Server):
    """A real Prometheus."""

    def __init__(
        self,
        directory: Path,
        config: Mapping[str, Any] | str,
        *flags: str,
        agent: bool = False,
        **web: Any,
    ) -> None:
        """Start it.

        Args:
            directory: Its own, for configuration, data and log.
            config: The configuration, as text or as what the text says; paths of rule files in it
                are absolute, or relative to ``directory``.
            flags: As ``--web.enable-remote-write-receiver``; exemplars are kept without asking.
            agent: It only forwards what it scrapes.
            web: How it is asked, as for ``Server``, where a flag gives it a web configuration.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.config = directory / "prometheus.yml"
        self.configure(config)
        features = "exemplar-storage,agent" if agent else "exemplar-storage"
        command = (
            "prometheus",
            f"--config.file={self.config}",
            f"--storage.{'agent' if agent else 'tsdb'}.path={directory / 'data'}",
            f"--enable-feature={features}",
            "--web.enable-lifecycle",
            *flags,
        )
        super().__init__(command, directory / "prometheus.log", **web)

    def configure(self, config: Mapping[str, Any] | str) -> None:
        """Write another configuration; it is in force after ``reload``."""
        text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False)
        self.config.write_text(text, encoding="utf-8")

    def reload(self) -> None:
        """Read the configuration and the rule files again."""
        self.post("-/reload")

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the HTTP API.

        Raises:
            OSError: It does not answer, or refuses the question.
        """
        return self.json(f"api/v1/{path}", **parameters)["data"]

    def query(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return all series of an instant query: each with ``metric`` and ``value``."""
        moment = {} if at is None else {"time": str(at)}
        return list(self.ask("query", query=query, **moment)["result"])

    def value(self, query: str, at: float | None = None) -> float:
        """Return the one number that a query gives."""
        (found,) = self.query(query, at)
        return float(found["value"][1])

    def values(self, query: str) -> list[float]:
        """Return the numbers that a query gives now, of no series none."""
        return [float(one["value"][1]) for one in self.query(query)]

    def series(self, selector: str, within: str = "5m") -> list[Point]:
        """Return all points of the one series that is selected: times and values."""
        (found,) = self.query(f"{selector}[{within}]")
        return [(at, float(value)) for at, value in found["values"]]

    def exemplars(self, query: str, seconds: float = 120.0) -> list[dict[str, Any]]:
        """Return the exemplars of the last seconds: each with ``labels`` and ``value``."""
        now = time.time()
        span = {"start": str(now - seconds), "end": str(now + 1)}
        found = self.ask("query_exemplars", query=query, **span)
        return [one for series in found for one in series["exemplars"]]

    def alerts(self, state: str = "firing") -> list[dict[str, Any]]:
        """Return the alerts in a state: each with ``labels`` and ``annotations``."""
        return [one for one in self.ask("alerts")["alerts"] if one["state"] == state]

    def wait_for_scrape(self, targets: int = 1, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until as many targets are up; the first look takes it some five seconds."""
        wait_for(lambda: len(self.query("up == 1")) >= targets, seconds, self.log)


class Webhook:
    """A receiver of alerts.

    Attributes:
        messages: What was posted, in order.
        url: Where to post it.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        kept = self.messages

        class Handler(http.server.BaseHTTPRequestHandler):
            """Keep what is posted."""

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                kept.append(json.loads(self.rfile.read(size)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def alerts(self, status: str = "firing", **labels: str) -> list[dict[str, Any]]:
        """Return the alerts told with a status and with these labels, in order."""
        told = [alert for message in [*self.messages] for alert in message["alerts"]]
        return [
            alert
            for alert in told
            if alert["status"] == status
            and all(alert["labels"].get(name) == value for name, value in labels.items())
        ]

    def stop(self, _: int = 0) -> None:
        """Hear no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


class Alertmanager(Server):
    """A real Alertmanager, alone."""

    def __init__(self, directory: Path, config: Mapping[str, Any] | str) -> None:
        """Start it with a configuration, as text or as what the text says."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "alertmanager.yml"
        text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False)
        path.write_text(text, encoding="utf-8")
        command = (
            "prometheus-alertmanager",
            f"--config.file={path}",
            f"--storage.path={directory / 'data'}",
            "--cluster.listen-address=",
        )
        super().__init__(command, directory / "alertmanager.log")

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that it holds, each with ``status`` and ``labels``."""
        return list(self.json("api/v2/alerts"))


class Monitoring:
    """Starts any number of them, each in a directory of its own, and ends all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Server | Webhook] = []

    def _own(self) -> Path:
        return self._directory / f"server-{len(self._started)}"

    def prometheus(
        self, config: Mapping[str, Any] | str, *flags: str, agent: bool = False, **web: Any
    ) -> Prometheus:
        """Start a Prometheus, and wait until it answers."""
        self._started.append(made := Prometheus(self._own(), config, *flags, agent=agent, **web))
        return made

    def scraping(self, *targets: str, rules: Sequence[Path] = (), **settings: Any) -> Prometheus:
        """Start a Prometheus that scrapes targets and evaluates rules each second."""
        files = {"rule_files": [str(path.resolve()) for path in rules]}
        return self.prometheus(scrape_config(*targets, **files, **settings))

    def alertmanager(self, config: Mapping[str, Any] | str) -> Alertmanager:
        """Start an Alertmanager, and wait until it answers."""
        self._started.append(made := Alertmanager(self._own(), config))
        return made

    def webhook(self) -> Webhook:
        """Start a receiver."""
        self._started.append(made := Webhook())
        return made

    def stop(self) -> None:
        """End all, the newest first."""
        while self._started:
            self._started.pop().stop(signal.SIGKILL)


@pytest.fixture
def monitoring(tmp_path: Path) -> Iterator[Monitoring]:
    """Servers that end with the test; a ``conftest.py`` imports this."""
    started = Monitoring(tmp_path)
    yield started
    started.stop()
