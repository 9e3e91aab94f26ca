"""What namespaces tell of a pair over HTTP, as tests ask for it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from tandembus.front_end.http.api.pair import VIEW_PATH, Looked, Partner, pair_document
from tandembus.pair_view.picture import Answer, picture
from tandembus.pair_view.view import view_from_document
from tandembus.security.sas import make_token, parse_connection_string
from tandembus.testing import EmbeddedNamespace
from tests.integration.serving import RunningNamespace

AnyNamespace = EmbeddedNamespace | RunningNamespace
COMES_WITHIN_S = 20.0
LOOK_EVERY_S = 0.1


def get(namespace: AnyNamespace, path: str) -> Any:
    """On a connection of its own: with several front ends, any of them may answer."""
    there = parse_connection_string(namespace.connection_string)
    assert there.key_name is not None
    assert there.key is not None
    url = f"http://{there.host}:{namespace.port}"
    token = make_token(url, there.key_name, there.key, time.time() + 300.0)
    request = urllib.request.Request(url + path, headers={"Authorization": token})
    with urllib.request.urlopen(request, timeout=10.0) as response:
        return json.load(response)


def alone(namespace: AnyNamespace) -> Any:
    """Its own picture, whoever its partner may be."""
    return get(namespace, "/$api/pair")


def together(namespace: AnyNamespace, partner: AnyNamespace) -> Any:
    """The picture of a namespace that asks its partner."""
    own = view_from_document(get(namespace, VIEW_PATH))
    asked = Answer(view_from_document(get(partner, VIEW_PATH)), own.at, own.at)
    return pair_document(Looked(own.at, own, Partner(asked), picture(own, asked, own.at)))


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


def is_in(path: str, state: str) -> Callable[[Any], bool]:
    def is_so(document: Any) -> bool:
        found = entity(document, path)
        return found is not None and found["state"] == state

    return is_so


def is_told(path: str, state: str) -> Callable[[Any], bool]:
    """At any time of the story."""

    def is_so(document: Any) -> bool:
        found = entity(document, path)
        return found is not None and state in states(found)

    return is_so


def states(found: Any) -> list[str]:
    return [one["state"] for one in found["segments"]]
