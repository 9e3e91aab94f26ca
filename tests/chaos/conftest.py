"""Everything in this folder is a row of the fault matrix, or a part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.server import Server

ServerMaker = Callable[..., Server]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.chaos)


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[ServerMaker]:
    """`make_server(commit_mode="thread")` returns a server, not started yet, with these limits."""
    made: list[Server] = []

    def make(data: Path | None = None, **limits: object) -> Server:
        server = Server(data or tmp_path / f"data-{len(made)}", limits)
        made.append(server)
        return server

    yield make
    for server in made:
        server.dispose()
