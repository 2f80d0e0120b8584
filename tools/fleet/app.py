"""The HTTP side of a simulated fleet: service discovery, and pages and API of each device."""

from collections.abc import Iterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tegrascope.daemon.store.history import History, samples_since

from .devices import Fleet, SimulatedDevice


def make_app(fleet: Fleet) -> Starlette:
    """Return the ASGI application."""

    async def index(_: Request) -> Response:
        there = fleet.devices
        troubles = [f"{one.plan.name} is {one.plan.fault}" for one in there if one.plan.fault]
        lines = (
            f"{len(there)} of {fleet.count} simulated devices: these figures are not from a real"
            " board.",
            "/sd lists them for http_sd_configs of Prometheus; /device/001/metrics is a page.",
            *troubles,
        )
        return PlainTextResponse("".join(f"{line}\n" for line in lines))

    async def discovery(request: Request) -> Response:
        address = request.headers.get("host", "127.0.0.1")
        return JSONResponse([target(one, address) for one in fleet.devices])

    def asked(request: Request) -> SimulatedDevice:
        device = fleet.device(request.path_params["number"])
        if device is None:
            raise HTTPException(404, "no such device, or not yet")
        if device.is_gone():
            raise HTTPException(503, "this device can't be reached now")
        return device

    async def metrics(request: Request) -> Response:
        body, content_type = asked(request).page.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def runs(request: Request) -> Response:
        reports = tuple(asked(request).work.reports)
        return JSONResponse({"runs": [report.model_dump(mode="json") for report in reports]})

    async def samples(request: Request) -> Response:
        device = asked(request)
        try:
            since = float(request.query_params.get("since", "0"))
            found = samples_since(_NoHistory(), device.timeline, max(since, 0.0), 3600)
        except ValueError:
            raise HTTPException(400, "since is a number of seconds") from None
        return JSONResponse({"samples": list(found)})

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/sd", discovery),
            Route("/device/{number:int}/metrics", metrics),
            Route("/device/{number:int}/api/v1/runs", runs),
            Route("/device/{number:int}/api/v1/samples", samples),
        ],
        exception_handlers={HTTPException: refused},
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=1)],
    )


class _NoHistory(History):
    """An empty store: a simulated device has its last minutes only."""

    def __init__(self) -> None:
        self.path = Path()

    def blocks(
        self, _begin: int, _end: int, _but_from: tuple[str, int] | None = None
    ) -> Iterator[bytes]:
        return iter(())


def target(device: SimulatedDevice, address: str) -> dict[str, object]:
    """Describe a device for the HTTP service discovery of Prometheus.

    All devices share one address: they differ by path and by ``instance``.
    """
    plan = device.plan
    return {
        "targets": [address],
        "labels": {
            "__metrics_path__": f"/device/{plan.number:03}/metrics",
            "__meta_tegrascope_board": plan.board,
            "__meta_tegrascope_fault": plan.fault or "",
            "instance": plan.name,
            "robot": plan.name,
            "site": plan.site,
        },
    }
