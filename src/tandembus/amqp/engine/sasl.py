"""The SASL layer (AMQP specification part 5.3): its frames, read and written.

Whether a peer is who it says it is, is decided by the application.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter

from tandembus.amqp.encoding.descriptors import SASL_INIT, SASL_MECHANISMS, SASL_OUTCOME
from tandembus.amqp.encoding.fields import Fields
from tandembus.amqp.encoding.frames import SASL_FRAME, write_performative
from tandembus.amqp.encoding.values import symbol, symbols, ubyte
from tandembus.errors import MalformedData

OK: Final = 0
AUTHENTICATION_FAILED: Final = 1


@final
class PlainCredentials:
    """What a PLAIN response says (RFC 4616)."""

    __slots__ = ("name", "password")

    def __init__(self, name: str, password: str) -> None:
        self.name: Final = name
        self.password: Final = password


def plain_response(name: str, password: str) -> bytes:
    return b"\x00" + name.encode() + b"\x00" + password.encode()


def read_plain_response(response: bytes) -> PlainCredentials:
    parts = response.split(b"\x00")
    if len(parts) != 3:
        raise MalformedData("a PLAIN response has three parts")
    try:
        return PlainCredentials(parts[1].decode(), parts[2].decode())
    except UnicodeDecodeError as error:
        raise MalformedData("a PLAIN response must be UTF-8") from error


def write_mechanisms(out: BytesWriter, mechanisms: tuple[str, ...]) -> None:
    write_performative(out, SASL_FRAME, 0, SASL_MECHANISMS, [symbols(list(mechanisms))])


def write_init(out: BytesWriter, mechanism: str, initial_response: bytes, hostname: str | None) -> None:
    write_performative(out, SASL_FRAME, 0, SASL_INIT, [symbol(mechanism), initial_response, hostname])


def write_outcome(out: BytesWriter, ok: bool) -> None:
    write_performative(out, SASL_FRAME, 0, SASL_OUTCOME, [ubyte(OK if ok else AUTHENTICATION_FAILED)])


def read_mechanisms(fields: Fields) -> list[str]:
    """An array of symbols; one symbol alone means an array of one."""
    value = fields.value()
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]
