"""The HTTP request that turns a connection into a WebSocket, and its refusals."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Final

PATH: Final = "$servicebus/websocket"
SUBPROTOCOLS: Final = ("AMQPWSB10", "amqp")
"""Two names of one thing: .NET offers only the latter."""
VERSION: Final = "13"
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NONCE_BYTES: Final = 16


class HandshakeRefused(Exception):
    """Why there is no WebSocket, as HTTP says it."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status: Final = status
        self.headers: Final = dict(headers or {})


def accept_handshake(method: str, headers: Mapping[str, str], is_upgrade: bool, has_body: bool) -> dict[str, str]:
    """The headers of the answer 101. `is_upgrade`: HTTP itself took the request for one to upgrade."""
    if method != "GET":
        raise HandshakeRefused(405, f"{method} is not possible here; GET is.", {"Allow": "GET"})
    if not is_upgrade or headers.get("Upgrade", "").strip().lower() != "websocket":
        raise HandshakeRefused(
            426, "Only WebSocket connections are taken here.", {"Upgrade": "websocket", "Connection": "Upgrade"}
        )
    if headers.get("Sec-WebSocket-Version", "").strip() != VERSION:
        raise HandshakeRefused(
            426, f"The WebSocket version must be {VERSION}.", {"Upgrade": "websocket", "Sec-WebSocket-Version": VERSION}
        )
    if has_body:
        raise HandshakeRefused(400, "A WebSocket begins with a request that has no body.")
    offered = [name.strip() for name in headers.get("Sec-WebSocket-Protocol", "").split(",")]
    chosen = next((name for name in offered if name in SUBPROTOCOLS), None)
    if chosen is None:
        raise HandshakeRefused(400, f"The WebSocket's subprotocol must be {' or '.join(SUBPROTOCOLS)}.")
    return {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": _accept(headers.get("Sec-WebSocket-Key", "").strip()),
        "Sec-WebSocket-Protocol": chosen,
    }


def _accept(key: str) -> str:
    try:
        nonce = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        nonce = b""
    if len(nonce) != _NONCE_BYTES:
        raise HandshakeRefused(400, "Sec-WebSocket-Key must be 16 bytes in base64.")
    return base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
