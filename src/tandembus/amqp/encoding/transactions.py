"""What a client says to a transaction coordinator (specification 4.5): declare and discharge, read and written."""

from __future__ import annotations

from typing import Final, final

from tandembus.amqp.encoding.delivery_states import transaction_id_of
from tandembus.amqp.encoding.descriptors import AMQP_VALUE, DECLARE, DISCHARGE, code_of
from tandembus.amqp.encoding.sections import amqp_value_section, decode_message
from tandembus.amqp.encoding.values import Described
from tandembus.errors import MalformedData

LOCAL_TRANSACTIONS: Final = "amqp:local-transactions"
MULTI_TXNS_PER_SSN: Final = "amqp:multi-txns-per-ssn"
MULTI_SSNS_PER_TXN: Final = "amqp:multi-ssns-per-txn"


@final
class Declare:
    """Begin a transaction. Its answer is the delivery state `declared`, which holds the transaction's id."""

    __slots__ = ("has_global_id",)

    def __init__(self, has_global_id: bool = False) -> None:
        self.has_global_id: Final = has_global_id
        """It is meant to be part of a distributed transaction."""


@final
class Discharge:
    """End a transaction: carry it out, or (`fail`) forget it."""

    __slots__ = ("fail", "txn_id")

    def __init__(self, txn_id: bytes, fail: bool) -> None:
        self.txn_id: Final = txn_id
        self.fail: Final = fail


def declare_message() -> bytes:
    return amqp_value_section(Described(DECLARE, [None]))


def discharge_message(txn_id: bytes, fail: bool) -> bytes:
    return amqp_value_section(Described(DISCHARGE, [txn_id, fail]))


def read_control_message(payload: bytes) -> Declare | Discharge:
    """Raises MalformedData for anything that is neither. Cold: a transaction has two of them."""
    message = decode_message(payload)
    if message.body_kind != AMQP_VALUE or len(message.bodies) != 1:
        raise MalformedData("A coordinator takes one amqp-value: declare or discharge.")
    body = message.body
    if not isinstance(body, Described) or not isinstance(body.value, list):
        raise MalformedData("A coordinator takes declare or discharge.")
    code = code_of(body.descriptor)
    fields = body.value
    if code == DECLARE:
        return Declare(len(fields) > 0 and fields[0] is not None)
    if code == DISCHARGE:
        return Discharge(transaction_id_of(fields), _fail_of(fields))
    raise MalformedData("A coordinator takes declare or discharge.")


def _fail_of(fields: list[object]) -> bool:
    fail = fields[1] if len(fields) > 1 else None
    if fail is not None and not isinstance(fail, bool):
        raise MalformedData("discharge: fail must be a boolean")
    return fail is True
