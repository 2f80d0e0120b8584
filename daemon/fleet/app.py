"""What a simulated fleet serves: a page a device, and the list of them for Prometheus."""

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .device import SimulatedDevice
from .fleet import Fleet


def make_app(fleet: Fleet) -> Starlette:
    """Return the ASGI application."""

    async def index(_: Request) -> Response:
        there = fleet.devices
        troubles = [f"{one.plan.name} is {one.plan.fault}" for one in there if one.plan.fault]
        lines = (
            f"{len(there)} of {fleet.count} simulated devices: these figures are of no real board.",
            "/sd lists them for http_sd_configs of Prometheus; /device/001/metrics is a page.",
            *troubles,
        )
        return PlainTextResponse("".join(f"{line}\n" for line in lines))

    async def discovery(request: Request) -> Response:
        address = request.headers.get("host", "127.0.0.1")
        return JSONResponse([target(one, address) for one in fleet.devices])

    async def metrics(request: Request) -> Response:
        device = fleet.device(request.path_params["number"])
        if device is None:
            return PlainTextResponse("no such device, or not yet\n", 404)
        if device.is_gone():
            return PlainTextResponse("this device can't be reached now\n", 503)
        body, content_type = device.page.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    return Starlette(
        routes=[
            Route("/", index),
            Route("/sd", discovery),
            Route("/device/{number:int}/metrics", metrics),
        ],
        middleware=[Middleware(GZipMiddleware, minimum_size=1000, compresslevel=1)],
    )


def target(device: SimulatedDevice, address: str) -> dict[str, object]:
    """Describe a device as HTTP service discovery of Prometheus wants it.

    All are at one address, so each is told apart by its path and by its ``instance``.

    Args:
        device: Which.
        address: Host and port by which it is reached.
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
