"""A start that fails leaves nothing behind: the same settings can be started again in the same process."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tandembus.config import ConfigurationError, Limits, ServeSettings
from tandembus.node.emulator import read_emulator_config
from tandembus.node.wiring import NamespaceNode
from tests.covers import covers
from tests.unit.node.emulator.config_json import config, queue


def settings(folder: Path, limits: Limits) -> ServeSettings:
    return ServeSettings(data=folder / "data", amqp_port=0, amqps_port=None, http_port=0, limits=limits)


@covers("M13", "B2")
async def test_a_start_that_fails_late_leaves_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps(config(queue("a"), queue("b"))))
    few = settings(tmp_path, Limits(max_entities=1))
    emulator = read_emulator_config(path, few.limits)
    before = asyncio.all_tasks()
    node = NamespaceNode(few, emulator=emulator)
    with pytest.raises(ConfigurationError, match="at most 1 are allowed"):
        await node.start()
    assert asyncio.all_tasks() == before
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", node.ports.amqp)
    again = NamespaceNode(settings(tmp_path, Limits()), emulator=emulator)
    await again.start()
    assert again.namespace.catalog.queue_count() == 2
    await again.stop()
