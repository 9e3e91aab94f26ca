"""A node one of whose parts has come to an end that it must not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tandembus.cli import serving
from tandembus.config import ServeSettings, load_settings
from tandembus.front_end.amqp.front_end import AmqpFrontEnd
from tandembus.node.wiring import NamespaceNode
from tests.covers import covers

ENDS_WITHIN_S = 20.0


@pytest.fixture
def settings(tmp_path: Path) -> ServeSettings:
    flags: dict[str, object] = {"data": tmp_path / "data", "amqp_port": 0, "http_port": 0, "amqps_port": "off"}
    return load_settings(None, {}, flags=flags)


@pytest.fixture
def broken_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that keeps connections alive breaks as soon as it runs."""

    async def break_down(_front_end: AmqpFrontEnd) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(AmqpFrontEnd, "_tick", break_down)


@covers("M13")
async def test_a_node_whose_parts_all_run_is_not_broken(settings: ServeSettings) -> None:
    node = NamespaceNode(settings)
    await node.start()
    assert not node.broken.is_set()
    await node.stop()


@pytest.mark.usefixtures("broken_ticks")
@covers("M13")
async def test_a_node_says_that_it_is_broken_when_an_essential_part_ends(settings: ServeSettings) -> None:
    node = NamespaceNode(settings)
    await node.start()
    await asyncio.wait_for(node.broken.wait(), ENDS_WITHIN_S)
    await node.stop()


@pytest.mark.usefixtures("broken_ticks")
@covers("M13")
async def test_a_server_that_is_broken_stops_in_order_with_exit_code_1(
    settings: ServeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "tune_process", lambda *_: None)
    assert await asyncio.wait_for(serving.serve(settings), ENDS_WITHIN_S) == 1


@covers("M13")
async def test_parts_of_the_broker_and_the_namespace_can_break_the_node_too(settings: ServeSettings) -> None:
    for part in ("broker", "namespace"):
        node = NamespaceNode(settings)
        await node.start()
        when_broken = node.brokers[0].when_broken if part == "broker" else node.namespace.when_broken
        when_broken(RuntimeError("broken"))
        assert node.broken.is_set()
        await node.stop()
