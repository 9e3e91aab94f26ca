"""The ports of a namespace, alone and shared by its front ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tandembus.config import ServeSettings
from tandembus.node import doors
from tandembus.node.doors import Ports, bind, bind_first
from tests.covers import covers


def settings(front_ends: int = 1, amqp_port: int = 0, amqps_port: int | None = None) -> ServeSettings:
    return ServeSettings(
        data=Path("unused"),
        amqp_port=amqp_port,
        http_port=0,
        amqps_port=amqps_port,
        brokers=1,
        front_ends=front_ends,
    )


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "FREE_WITHIN_S", 0.2)


@pytest.mark.parametrize("front_ends", [1, 3])
async def test_any_free_ports_are_found_and_told(front_ends: int) -> None:
    bound = await bind_first(settings(front_ends, amqps_port=0))
    numbers = [one.getsockname()[1] for one in bound.sockets]
    assert [bound.ports.amqp, bound.ports.http, bound.ports.amqps] == numbers
    assert len(set(numbers)) == 3
    bound.close()


@covers("P1")
async def test_further_front_ends_share_the_ports_of_the_first() -> None:
    first = await bind_first(settings(3))
    others = [bind(settings(3), first.ports, is_shared=True) for _ in range(2)]
    assert all(one.ports == first.ports for one in others)
    for one in (first, *others):
        one.close()


@covers("P1")
async def test_nobody_shares_the_ports_of_a_namespace_that_has_one_front_end() -> None:
    first = await bind_first(settings(1))
    with pytest.raises(OSError, match=str(first.ports.amqp)):
        bind(settings(2), first.ports, is_shared=True)
    first.close()


@covers("P1")
async def test_two_namespaces_do_not_share_ports_by_mistake() -> None:
    first = await bind_first(settings(2))
    with pytest.raises(OSError, match="cannot be listened on"):
        await bind_first(settings(2, amqp_port=first.ports.amqp))
    first.close()


async def test_what_was_bound_is_let_go_of_when_another_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        with pytest.raises(OSError, match="cannot be listened on"):
            bind(settings(), Ports(port, taken.getsockname()[1], None), is_shared=False)
        bind(settings(), Ports(port, 0, None), is_shared=False).close()
