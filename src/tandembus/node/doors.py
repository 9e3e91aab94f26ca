"""The ports of a namespace: which they are, and who listens on them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from tandembus.config import ServeSettings
from tandembus.front_end.listener import listen

FREE_WITHIN_S: Final = 2.0
"""How long front ends of an earlier life may take to let go of their ports."""
LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Ports:
    """Once they are known: what was 0 in the settings is the one that was free."""

    amqp: int
    http: int
    amqps: int | None
    further: tuple[tuple[str, int], ...] = ()
    """Hosts and ports of further listeners."""


@final
class ListeningSockets:
    """Bound, and not yet served: who connects waits."""

    def __init__(self, sockets: Sequence[socket.socket], ports: Ports) -> None:
        self.sockets = sockets
        self.ports = ports

    def close(self) -> None:
        for one in self.sockets:
            one.close()


async def bind_first(settings: ServeSettings) -> ListeningSockets:
    """For the first front end of a namespace. Ports that are to be shared with its other front ends would be shared
    with anybody else's, too: so nobody may be there yet. Raises OSError."""
    if settings.front_ends == 1:
        return bind(settings, _asked_for(settings), is_shared=False)
    deadline = asyncio.get_running_loop().time() + FREE_WITHIN_S
    while True:
        try:
            # Held all together, so that ports that are any free ones differ.
            with contextlib.closing(bind(settings, _asked_for(settings), is_shared=False)) as alone:
                ports = alone.ports
            return bind(settings, ports, is_shared=True)
        except OSError:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            await asyncio.sleep(LOOK_AGAIN_S)


def bind(settings: ServeSettings, ports: Ports, *, is_shared: bool) -> ListeningSockets:
    """All of them, or none. Raises OSError."""
    with contextlib.ExitStack() as bound:
        sockets = []
        for port in (ports.amqp, ports.http, ports.amqps):
            if port is not None:
                sockets.append(listen(settings.host, port, is_shared=is_shared))
                bound.callback(sockets[-1].close)
        numbers = [one.getsockname()[1] for one in sockets]
        further = []
        for host, port in ports.further:
            sockets.append(listen(host, port, is_shared=is_shared, is_ipv6_alone=True))
            bound.callback(sockets[-1].close)
            further.append((host, sockets[-1].getsockname()[1]))
        bound.pop_all()
    amqps = numbers[2] if len(numbers) > 2 else None
    return ListeningSockets(sockets, Ports(numbers[0], numbers[1], amqps, tuple(further)))


def _asked_for(settings: ServeSettings) -> Ports:
    return Ports(settings.amqp_port, settings.http_port, settings.amqps_port, settings.further_addresses)
