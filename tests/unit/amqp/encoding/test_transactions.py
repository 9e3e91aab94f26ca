"""What is said on a control link: exact bytes out, anything hostile in."""

from __future__ import annotations

import pytest

from tandembus.amqp.encoding import Described, encode, symbol, ulong
from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    REJECTED_STATE,
    declared_state,
    read_state,
    transactional_state,
)
from tandembus.amqp.encoding.sections import amqp_value_section, data_section
from tandembus.amqp.encoding.terminus import Terminus, read_terminus
from tandembus.amqp.encoding.transactions import (
    LOCAL_TRANSACTIONS,
    MULTI_SSNS_PER_TXN,
    Declare,
    Discharge,
    declare_message,
    discharge_message,
    read_control_message,
)
from tandembus.errors import MalformedData
from tests.covers import covers


@covers("M11")
def test_the_messages_of_a_control_link_have_the_bytes_of_the_specification() -> None:
    assert declare_message() == bytes.fromhex("005377 005331 c0020140")
    assert discharge_message(b"tx", False) == bytes.fromhex("005377 005332 c00602 a0027478 42")
    assert discharge_message(b"tx", True) == bytes.fromhex("005377 005332 c00602 a0027478 41")


@covers("M11")
def test_the_states_of_transactions_have_the_bytes_of_the_specification() -> None:
    assert declared_state(b"tx") == bytes.fromhex("005333 c00501 a0027478")
    assert transactional_state(b"tx") == bytes.fromhex("005334 c00602 a0027478 40")
    assert transactional_state(b"tx", ACCEPTED_STATE) == bytes.fromhex("005334 c00902 a0027478 00532445")


@covers("M11")
def test_a_coordinator_is_written_with_what_it_can() -> None:
    written = Terminus(0x30, capabilities=[LOCAL_TRANSACTIONS, MULTI_SSNS_PER_TXN]).encoded()
    assert written[:3] == b"\x00\x53\x30"
    found = read_terminus(written)
    assert found is not None
    assert found.is_coordinator
    assert found.capabilities == [LOCAL_TRANSACTIONS, MULTI_SSNS_PER_TXN]


@covers("M11")
@pytest.mark.parametrize(
    "body",
    [
        Described(0x31, []),
        Described(0x31, [None]),
        Described(ulong(0x31), [None]),
        Described(symbol("amqp:declare:list"), [None]),
    ],
    ids=repr,
)
def test_a_declaration_is_understood_in_every_form(body: Described) -> None:
    declare = read_control_message(amqp_value_section(body))
    assert isinstance(declare, Declare)
    assert not declare.has_global_id


def test_a_distributed_transaction_is_recognised() -> None:
    declare = read_control_message(amqp_value_section(Described(0x31, [b"global"])))
    assert isinstance(declare, Declare)
    assert declare.has_global_id


@covers("M11")
@pytest.mark.parametrize(
    ("fields", "fail"), [([b"tx"], False), ([b"tx", None], False), ([b"tx", False], False), ([b"tx", True], True)]
)
def test_a_discharge_is_a_commit_unless_it_says_otherwise(fields: list[object], fail: bool) -> None:
    for descriptor in (0x32, symbol("amqp:discharge:list")):
        discharge = read_control_message(amqp_value_section(Described(descriptor, fields)))
        assert isinstance(discharge, Discharge)
        assert (discharge.txn_id, discharge.fail) == (b"tx", fail)


@covers("M11", "M12")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"\x40",
        data_section(b"declare"),
        amqp_value_section(None),
        amqp_value_section("declare"),
        amqp_value_section([b"tx", False]),
        amqp_value_section(Described(0x33, [b"tx"])),
        amqp_value_section(Described("someone:else", [b"tx"])),
        amqp_value_section(Described(0x31, {"a": 1})),
        amqp_value_section(Described(0x32, [])),
        amqp_value_section(Described(0x32, [None, False])),
        amqp_value_section(Described(0x32, ["tx", False])),
        amqp_value_section(Described(0x32, [b"x" * 33, False])),
        amqp_value_section(Described(0x32, [b"tx", "true"])),
        amqp_value_section(Described(0x32, [b"tx", 1])),
        declare_message() + declare_message(),
        discharge_message(b"tx", True)[:-1],
    ],
    ids=bytes.hex,
)
def test_anything_else_on_a_control_link_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedData):
        read_control_message(payload)


@covers("M11", "M12")
@pytest.mark.parametrize(
    "state",
    [
        Described(0x34, []),
        Described(0x34, [b"x" * 33]),
        Described(0x34, ["tx", Described(0x24, [])]),
        Described(0x34, [b"tx", Described(0x34, [b"tx"])]),
        Described(0x34, [b"tx", "accepted"]),
        Described(0x34, {"txn-id": b"tx"}),
        Described(0x33, [b"x" * 33]),
    ],
    ids=repr,
)
def test_a_malformed_state_of_a_transaction_is_refused(state: Described) -> None:
    data = encode(state)
    with pytest.raises(MalformedData):
        read_state(data, 0, len(data))


@covers("M11")
def test_ids_of_up_to_32_bytes_and_outcomes_of_every_kind_are_read() -> None:
    data = transactional_state(b"x" * 32, REJECTED_STATE)
    state = read_state(data, 0, len(data))
    assert state is not None
    assert state.inner is not None
    assert (state.code, state.txn_id, state.inner.code, state.inner.error) == (0x34, b"x" * 32, 0x25, None)
