"""Spans of what a syphon brings home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from opentelemetry.trace import Span

from tandembus.pairing.syphon_ports import PrimaryPort
from tandembus.tracing.context import sampled_context_of_payload
from tandembus.tracing.spans import Spans, end


@final
class TracedPrimary:
    """A primary whose sends are spans, from the first byte until they are accepted."""

    def __init__(self, inner: PrimaryPort, spans: Spans) -> None:
        self._inner: Final = inner
        self._spans: Final = spans

    async def send(self, path: str, payloads: Sequence[bytes]) -> None:
        begun = self._begin(path, payloads)
        try:
            await self._inner.send(path, payloads)
        except BaseException as error:
            end(begun, error)
            raise
        end(begun, None)

    def _begin(self, path: str, payloads: Sequence[bytes]) -> list[Span]:
        begun: list[Span] = []
        for payload in payloads:
            context = sampled_context_of_payload(payload)
            if context is not None:
                attributes = {"messaging.operation.name": "syphon", "messaging.destination.name": path}
                begun.append(self._spans.begin(f"syphon {path}", context, attributes))
        return begun

    async def close(self) -> None:
        await self._inner.close()
