"""Fixtures for everybody who has pytest: a namespace for each test, or one for the session that is emptied between.

Loaded in every session where this package is installed. So it imports nothing until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, cast

import pytest

if TYPE_CHECKING:
    from tandembus.testing.embedded import EmbeddedNamespace


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tandembus").addoption(
        "--tandembus-scope",
        choices=("function", "session"),
        help="a namespace for each test, or one for all of them that is emptied in between (ini: tandembus_scope)",
    )
    parser.addini("tandembus_scope", "function (a namespace for each test) or session", default="function")
    parser.addini("tandembus_store", "memory or lmdb: where the namespace keeps messages", default="memory")
    parser.addini("tandembus_stores", "how many messaging stores the namespace has", default="1")
    parser.addini("tandembus_config", "a Config.json of the Service Bus emulator, for its entities", default="")


@pytest.fixture(scope="session")
def tandembus_server(pytestconfig: pytest.Config) -> Iterator[EmbeddedNamespace]:
    """One namespace for the whole session, never emptied by itself. Most tests want `tandembus_namespace`."""
    with _namespace(pytestconfig) as namespace:
        yield namespace


@pytest.fixture
def tandembus_namespace(request: pytest.FixtureRequest) -> Iterator[EmbeddedNamespace]:
    """A namespace that is empty when the test begins."""
    if _scope(request.config) == "session":
        namespace: EmbeddedNamespace = request.getfixturevalue("tandembus_server")
        yield namespace
        namespace.reset()
    else:
        with _namespace(request.config) as own:
            yield own


@pytest.fixture
def tandembus_connection_string(tandembus_namespace: EmbeddedNamespace) -> str:
    """What the SDKs take; nothing has to be said about TLS."""
    return tandembus_namespace.connection_string


def _scope(config: pytest.Config) -> str:
    scope = config.getoption("--tandembus-scope") or config.getini("tandembus_scope")
    if scope not in ("function", "session"):
        raise pytest.UsageError(f"tandembus_scope must be function or session, not {scope!r}")
    return str(scope)


def _namespace(config: pytest.Config) -> EmbeddedNamespace:
    from tandembus.testing.embedded import EmbeddedNamespace

    store = config.getini("tandembus_store")
    if store not in ("memory", "lmdb"):
        raise pytest.UsageError(f"tandembus_store must be memory or lmdb, not {store!r}")
    stores = config.getini("tandembus_stores")
    if not str(stores).isdecimal() or int(stores) < 1:
        raise pytest.UsageError(f"tandembus_stores must be a number from 1 on, not {stores!r}")
    path = config.getini("tandembus_config")
    return EmbeddedNamespace(
        store=cast(Literal["memory", "lmdb"], store),
        config=config.rootpath / path if path else None,
        stores=int(stores),
    )
