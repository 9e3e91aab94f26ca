"""Errors and delivery states: what happened to a delivery, read and written."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import decode_between, encode
from tandembus.amqp.encoding.descriptors import (
    ACCEPTED,
    DECLARED,
    ERROR,
    MODIFIED,
    RECEIVED,
    REJECTED,
    RELEASED,
    TRANSACTIONAL_STATE,
    code_of,
)
from tandembus.amqp.encoding.values import Described, Encoded, Typed, symbol
from tandembus.errors import MalformedData

MAX_TRANSACTION_ID_BYTES: Final = 32
"""The specification's bound (4.5.6)."""


@final
class AmqpError:
    """An error as AMQP says it. Always written with all three fields: some clients read them unchecked."""

    __slots__ = ("condition", "description", "info")

    def __init__(self, condition: str, description: str = "", info: dict[object, object] | None = None) -> None:
        self.condition: Final = condition
        self.description: Final = description
        self.info: Final = info

    def as_value(self) -> Described:
        info: object = None
        if self.info is not None:
            info = {symbol(key) if isinstance(key, str) else key: value for key, value in self.info.items()}
        return Described(ERROR, [symbol(self.condition), self.description, info])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AmqpError):
            return False
        return self.condition == other.condition and self.description == other.description and self.info == other.info

    def __hash__(self) -> int:
        return hash((self.condition, self.description))

    def __repr__(self) -> str:
        return f"AmqpError({self.condition!r}, {self.description!r}, {self.info!r})"


@final
class Outcome:
    """A delivery state that came from the peer.

    Values inside `message_annotations` and `error.info` keep their AMQP types (`Typed`), because they may be
    stored; their keys are plain text.
    """

    __slots__ = (
        "code",
        "delivery_failed",
        "error",
        "inner",
        "message_annotations",
        "txn_id",
        "undeliverable_here",
    )

    def __init__(
        self,
        code: int,
        error: AmqpError | None = None,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        message_annotations: dict[object, object] | None = None,
        txn_id: bytes | None = None,
        inner: Outcome | None = None,
    ) -> None:
        self.code: Final = code
        self.error: Final = error
        self.delivery_failed: Final = delivery_failed
        self.undeliverable_here: Final = undeliverable_here
        self.message_annotations: Final = message_annotations
        self.txn_id: Final = txn_id
        self.inner: Final = inner

    def __repr__(self) -> str:
        return f"Outcome(0x{self.code:02X}, {self.error!r})"


ACCEPTED_OUTCOME: Final = Outcome(ACCEPTED)
RELEASED_OUTCOME: Final = Outcome(RELEASED)

ACCEPTED_STATE: Final = b"\x00\x53\x24\x45"
RELEASED_STATE: Final = b"\x00\x53\x26\x45"
MODIFIED_STATE: Final = b"\x00\x53\x27\x45"
REJECTED_STATE: Final = b"\x00\x53\x25\xc0\x02\x01\x40"
"""Rejected with a null error: how a successful dead-lettering is confirmed."""


def rejected_state(error: AmqpError) -> bytes:
    return encode(Described(REJECTED, [error.as_value()]))


def modified_state(
    delivery_failed: bool = False,
    undeliverable_here: bool = False,
    message_annotations: dict[object, object] | None = None,
) -> bytes:
    annotations: object = None
    if message_annotations is not None:
        annotations = {
            symbol(key) if isinstance(key, str) else key: value for key, value in message_annotations.items()
        }
    return encode(Described(MODIFIED, [delivery_failed, undeliverable_here, annotations]))


def declared_state(txn_id: bytes) -> bytes:
    return encode(Described(DECLARED, [txn_id]))


def transactional_state(txn_id: bytes, outcome: bytes = b"") -> bytes:
    """`outcome` is an encoded delivery state: what it will be if the transaction is carried out; empty for none."""
    return encode(Described(TRANSACTIONAL_STATE, [txn_id, Encoded(outcome) if outcome else None]))


def read_state(data: bytes, at: i64, end: i64) -> Outcome | None:
    """The delivery state that fills the data from `at` to `end`."""
    if end - at == 4 and data[at] == 0 and data[at + 1] == 0x53 and data[at + 2] == 0x24 and data[at + 3] == 0x45:
        return ACCEPTED_OUTCOME
    value = decode_between(data, at, end, True)
    if value is None:
        return None
    return outcome_of(value, False)


def outcome_of(value: object, is_inner: bool) -> Outcome:
    if not isinstance(value, Described) or not isinstance(value.value, list):
        raise MalformedData("a delivery state is expected here")
    code = code_of(value.descriptor)
    fields = value.value
    if code == ACCEPTED:
        return ACCEPTED_OUTCOME
    if code == RELEASED:
        return RELEASED_OUTCOME
    if code == REJECTED:
        return Outcome(REJECTED, error_of(_field(fields, 0)))
    if code == MODIFIED:
        return _modified(fields)
    if code == RECEIVED:
        return Outcome(RECEIVED)
    if code == DECLARED:
        return Outcome(DECLARED, txn_id=transaction_id_of(fields))
    if code == TRANSACTIONAL_STATE and not is_inner:
        inner = _field(fields, 1)
        return Outcome(
            TRANSACTIONAL_STATE,
            txn_id=transaction_id_of(fields),
            inner=None if inner is None else outcome_of(inner, True),
        )
    raise MalformedData("an unknown delivery state")


def _field(fields: list[object], index: int) -> object:
    return fields[index] if index < len(fields) else None


def _modified(fields: list[object]) -> Outcome:
    annotations = _field(fields, 2)
    if annotations is not None and not isinstance(annotations, dict):
        raise MalformedData("message-annotations must be a map")
    return Outcome(
        MODIFIED,
        delivery_failed=_field(fields, 0) is True,
        undeliverable_here=_field(fields, 1) is True,
        message_annotations=None if annotations is None else _plain_keys(annotations),
    )


def transaction_id_of(fields: list[object]) -> bytes:
    txn_id = _field(fields, 0)
    if not isinstance(txn_id, bytes) or len(txn_id) > MAX_TRANSACTION_ID_BYTES:
        raise MalformedData(f"a transaction id must be a binary of at most {MAX_TRANSACTION_ID_BYTES} bytes")
    return txn_id


def _plain_keys(entries: dict[object, object]) -> dict[object, object]:
    return {key.value if isinstance(key, Typed) else key: value for key, value in entries.items()}


def error_of(value: object) -> AmqpError | None:
    """The error in a detach, end, close or rejected; None for null."""
    if value is None:
        return None
    if not isinstance(value, Described) or not isinstance(value.value, list) or code_of(value.descriptor) != ERROR:
        raise MalformedData("an error is expected here")
    fields = value.value
    info = _field(fields, 2)
    return AmqpError(
        _text(_field(fields, 0)),
        _text(_field(fields, 1)),
        _plain_keys(info) if isinstance(info, dict) else None,
    )


def _text(value: object) -> str:
    plain = value.value if isinstance(value, Typed) else value
    return plain if isinstance(plain, str) else ""
