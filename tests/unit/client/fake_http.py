"""An HTTP server on a loopback socket that answers as a test tells it to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeHttp:
    """Use it as `async with FakeHttp(answer) as server`; `requests` are those that came: method and address."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        self.bodies: list[bytes] = []
        self._answer = answer
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeHttp:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @property
    def connection_string(self) -> str:
        assert self._runner is not None
        port = self._runner.addresses[0][1]
        return f"Endpoint=sb://127.0.0.1:{port}/;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"

    async def _take(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, str(request.rel_url)))
        self.tokens.append(request.headers.get("Authorization", ""))
        self.bodies.append(await request.read())
        return await self._answer(request)
