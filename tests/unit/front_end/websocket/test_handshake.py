"""The request that begins a WebSocket: accepted only as it must be, refused with what would be right."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from tandembus.front_end.websocket.handshake import HandshakeRefused, accept_handshake
from tests.covers import covers

# Key and answer are the example of RFC 6455, section 1.3.
HEADERS = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "AMQPWSB10",
}


def accept(method: str = "GET", is_upgrade: bool = True, has_body: bool = False, **changes: str) -> dict[str, str]:
    headers = CIMultiDict(HEADERS)
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    return accept_handshake(method, headers, is_upgrade, has_body)


@covers("B1")
def test_a_proper_request_is_accepted_with_the_key_answered() -> None:
    assert accept() == {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "Sec-WebSocket-Protocol": "AMQPWSB10",
    }


def test_the_subprotocol_may_be_one_of_several_and_extensions_are_not_taken_up() -> None:
    answer = accept(sec_websocket_protocol="other, AMQPWSB10", sec_websocket_extensions="permessage-deflate")
    assert answer["Sec-WebSocket-Protocol"] == "AMQPWSB10"
    assert "Sec-WebSocket-Extensions" not in answer


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"method": "POST"}, 405, "GET is"),
        ({"is_upgrade": False}, 426, "Only WebSocket"),
        ({"upgrade": "h2c"}, 426, "Only WebSocket"),
        ({"sec_websocket_version": "8"}, 426, "must be 13"),
        ({"sec_websocket_version": ""}, 426, "must be 13"),
        ({"has_body": True}, 400, "no body"),
        ({"sec_websocket_protocol": "mqtt"}, 400, "must be AMQPWSB10"),
        ({"sec_websocket_protocol": ""}, 400, "must be AMQPWSB10"),
        ({"sec_websocket_key": ""}, 400, "16 bytes"),
        ({"sec_websocket_key": "dGhl"}, 400, "16 bytes"),
        ({"sec_websocket_key": "!" * 24}, 400, "16 bytes"),
        ({"sec_websocket_key": "é" * 24}, 400, "16 bytes"),
    ],
)
def test_any_other_request_is_refused_with_what_would_be_right(
    changes: dict[str, object], status: int, told: str
) -> None:
    with pytest.raises(HandshakeRefused, match=told) as refused:
        accept(**changes)  # type: ignore[arg-type]
    assert refused.value.status == status
    if status == 426:
        assert refused.value.headers["Upgrade"] == "websocket"
