"""What namespaces tell of a pair over HTTP, as tests ask for it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from tandembus.security.sas import make_token, parse_connection_string
from tandembus.testing import EmbeddedNamespace
from tests.integration.serving import RunningNamespace

AnyNamespace = EmbeddedNamespace | RunningNamespace
COMES_WITHIN_S = 30.0
LOOK_EVERY_S = 0.1


def ask(namespace: AnyNamespace, path: str, method: str = "GET", document: object = None) -> Any:
    """On a connection of its own: with several front ends, any of them may answer."""
    there = parse_connection_string(namespace.connection_string)
    assert there.key_name is not None
    assert there.key is not None
    url = f"http://{there.host}:{namespace.port}"
    headers = {"Authorization": make_token(url, there.key_name, there.key, time.time() + 300.0)}
    body = None if document is None else json.dumps(document).encode()
    if body is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url + path, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=10.0) as response:
        return json.load(response)


def pair_of(namespace: AnyNamespace) -> Any:
    """Its picture of the pair; it asks its partner, where it has one."""
    return ask(namespace, "/$api/pair")


def until(look: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """What was found as soon as it is as it should be."""
    deadline = time.monotonic() + COMES_WITHIN_S
    while True:
        found = look()
        if is_so(found):
            return found
        assert time.monotonic() < deadline, f"it did not become so: {json.dumps(found, indent=1)}"
        time.sleep(LOOK_EVERY_S)


def entity(document: Any, path: str) -> Any:
    """Of a picture; None where nothing was seen of it."""
    return next((one for one in document["entities"] if one["path"] == path), None)


def until_told(namespace: AnyNamespace, path: str, is_so: Callable[[Any], bool]) -> Any:
    """The picture, as soon as it tells of an entity what it should."""

    def tells(found: Any) -> bool:
        one = entity(found, path)
        return one is not None and is_so(one)

    return until(lambda: pair_of(namespace), tells)


def states(found: Any) -> list[str]:
    return [one["state"] for one in found["segments"]]
