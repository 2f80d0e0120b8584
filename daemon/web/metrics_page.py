"""The metric page: rendered once for each snapshot and format, then handed out as bytes."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ..export.metrics import families
from ..export.snapshot import Snapshot

# A scraper may ask for any version and escaping; pages are kept for so many of them.
_FORMATS_AT_MOST = 8


class Page:
    """The metric page, rendered once for each snapshot and format."""

    def __init__(self, read: Callable[[], Snapshot], monotonic_ns: Callable[[], int]) -> None:
        self._read = read
        self._monotonic_ns = monotonic_ns
        self._rendered: dict[str, tuple[object, bytes]] = {}
        self._process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its content type, in the format that ``Accept`` asks for."""
        encode, content_type = choose_encoder(accept)
        snapshot, now_ns = self._read(), self._monotonic_ns()
        # Freshness is part of the key, so that a hanging source shows within the second.
        fresh = tuple(source.is_fresh(now_ns) for source in snapshot.sources)
        key = (snapshot.version, fresh, now_ns // 1_000_000_000)
        if self._rendered.get(content_type, (None,))[0] != key:
            registry = CollectorRegistry()
            registry.register(_Families(families(snapshot, now_ns)))
            registry.register(self._process)
            if len(self._rendered) >= _FORMATS_AT_MOST:
                self._rendered.clear()
            self._rendered[content_type] = (key, encode(registry))
        return self._rendered[content_type][1], content_type


class _Families(Collector):
    def __init__(self, made: list[Metric]) -> None:
        self._made = made

    def collect(self) -> list[Metric]:
        return self._made
