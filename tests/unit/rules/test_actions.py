"""SQL actions: what they change, what they leave alone, and what they refuse."""

from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from tandembus.amqp.encoding import Described, Encoded, Typed, byte_, float_, int_, symbol, timestamp, ubyte, ulong
from tandembus.amqp.encoding.sections import (
    application_properties_section,
    data_section,
    decode_message,
    message_annotations_section,
    properties_section,
)
from tandembus.descriptions import RuleDescription, SqlAction, TrueFilter
from tandembus.errors import InvalidArgument
from tandembus.message import Message, message_id_of, parse_message, session_id_of
from tandembus.message_encoding import encode_delivery
from tandembus.rules import ChangedMessage, MessageView, compile_rule, copy_with
from tests.covers import covers
from tests.unit.rules.corpus_message import GUID, HOUR_MS, MOMENT, MOMENT_MS, PARAMETERS, a_message, a_view

Properties = dict[str, object]


def changed_by(sql: str, view: MessageView) -> ChangedMessage | None:
    return compile_rule(RuleDescription("rule", TrueFilter(), SqlAction(sql, PARAMETERS))).apply(view)


def applied(sql: str, properties: Properties) -> Properties:
    """The application properties, with their types, after the action."""
    changed = changed_by(sql, a_view(properties))
    assert changed is not None
    found = decode_message(changed.application_properties, typed=True).application_properties
    assert found is not None
    assert found.pop("RuleName") == "rule"
    return {str(name): value for name, value in found.items()}


def copied(sql: str) -> Message:
    view = a_view({"color": "blue", "size": 12})
    changed = changed_by(sql, view)
    assert changed is not None
    return copy_with(view.message, changed)


@covers("M9")
def test_set_creates_a_property() -> None:
    assert applied("SET color = 'blue'", {}) == {"color": "blue"}


@covers("M9")
def test_set_overwrites_a_property_whatever_its_case_and_keeps_its_name_and_place() -> None:
    assert list(applied("SET COLOR = 'red'", {"Color": "blue", "size": 1}).items()) == [("Color", "red"), ("size", 1)]


@covers("M9")
def test_statements_follow_each_other_with_or_without_semicolons() -> None:
    for sql in ("SET a = 1; SET b = 2; REMOVE c;", "SET a = 1 SET b = 2 REMOVE c", "set a=1;;remove c;set b=2"):
        assert applied(sql, {"c": 3}) == {"a": 1, "b": 2}


@covers("M9")
def test_a_statement_sees_what_those_before_it_did() -> None:
    assert applied("SET a = a + 1; SET b = a * 2; REMOVE a; SET c = a", {"a": 1}) == {"b": 4, "c": None}


@covers("M9")
def test_remove_takes_away_every_spelling_of_a_property() -> None:
    assert applied("REMOVE color", {"color": 1, "Color": 2, "colour": 3}) == {"colour": 3}


@covers("M9")
def test_removing_what_is_not_there_changes_nothing() -> None:
    assert applied("REMOVE color", {"size": 1}) == {"size": 1}


@covers("M9")
def test_a_property_that_an_action_does_not_name_stays_the_bytes_that_came() -> None:
    view = a_view()
    changed = changed_by("SET extra = 1", view)
    assert changed is not None
    section = view.message.sections[view.message.properties_end : view.message.application_end]
    entries = section[12:]
    assert section[3] == 0xD1
    assert entries in changed.application_properties


@covers("M9")
def test_the_copy_tells_the_name_of_its_rule() -> None:
    changed = changed_by("SET a = 1", a_view({"rulename": "of an earlier topic"}))
    assert changed is not None
    assert decode_message(changed.application_properties).application_properties == {"rulename": "rule", "a": 1}


@covers("M9")
def test_an_action_may_set_or_remove_the_name_of_its_rule() -> None:
    for sql, expected in (("SET RuleName = 'mine'", {"RuleName": "mine"}), ("REMOVE RuleName", {})):
        changed = changed_by(sql, a_view({}))
        assert changed is not None
        assert decode_message(changed.application_properties).application_properties == expected


@covers("M9")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'text'", "text"),
        ("12", 12),
        ("1.5", 1.5),
        ("TRUE", True),
        ("NULL", None),
        ("missing", None),
        ("@moment", timestamp(MOMENT_MS)),
        ("@hour", Described("com.microsoft:timespan", HOUR_MS * 10_000)),
        ("@guid", GUID),
        ("@blob", b"\x00\x01"),
        ("sys.Label", "order"),
        ("sys.EnqueuedTimeUtc", timestamp(MOMENT_MS)),
        ("'a' + 'b' + 1", "ab1"),
        ("(1 + 2) * 3", 9),
        ("p('source')", "here"),
        ("unsigned", ulong(2**63 + 5)),
    ],
)
def test_a_new_property_gets_the_type_of_the_expression(expression: str, expected: object) -> None:
    properties: Properties = {"source": "here", "unsigned": ulong(2**63 + 5)}
    assert applied(f"SET x = {expression}", properties)["x"] == expected


@covers("M9")
def test_newid_is_another_one_each_time() -> None:
    found = applied("SET a = newid(); SET b = newid()", {})
    assert isinstance(found["a"], uuid.UUID)
    assert isinstance(found["b"], uuid.UUID)
    assert found["a"] != found["b"]


@covers("M9")
@pytest.mark.parametrize(
    ("existing", "expression", "expected"),
    [
        (int_(5), "6", int_(6)),
        (int_(5), "6.0", int_(6)),
        (int_(5), "'7'", int_(7)),
        (byte_(5), "x + 1", byte_(6)),
        (ubyte(5), "255", ubyte(255)),
        (ulong(5), "6", ulong(6)),
        (Typed(0x61, 5), "-6", Typed(0x61, -6)),
        (5, "7.0", 7),
        (1.5, "7", 7.0),
        (1.5, "'2.5'", 2.5),
        (float_(1.5), "0.25", float_(0.25)),
        ("text", "7", "7"),
        ("text", "7.5", "7.5"),
        ("text", "TRUE", "True"),
        (symbol("text"), "'other'", symbol("other")),
        (True, "'false'", False),
        (GUID, "'00000000-0000-0000-0000-000000000001'", uuid.UUID(int=1)),
        (timestamp(5), "7", timestamp(7)),
    ],
)
def test_set_keeps_the_type_that_a_property_has(existing: object, expression: str, expected: object) -> None:
    assert applied(f"SET x = {expression}", {"x": existing})["x"] == expected


@covers("M9")
@pytest.mark.parametrize(
    ("existing", "expression", "expected"),
    [
        (int_(5), "3000000000", 3_000_000_000),
        (byte_(5), "200", 200),
        (ubyte(5), "-1", -1),
        (int_(5), "1.5", 1.5),
        (int_(5), "'many'", "many"),
        (int_(5), "'1_000'", "1_000"),
        (1.5, "9007199254740993", 9_007_199_254_740_993),
        (1.5, "'inf'", "inf"),
        (float_(1.5), "1E300", 1e300),
        (True, "'maybe'", "maybe"),
        (True, "1", 1),
        (GUID, "'no uuid'", "no uuid"),
        ("text", "@moment", timestamp(MOMENT_MS)),
        (5, "NULL", None),
        (None, "5", 5),
        ([1, 2], "5", 5),
    ],
)
def test_a_value_that_does_not_fit_the_type_brings_its_own(existing: object, expression: str, expected: object) -> None:
    assert applied(f"SET x = {expression}", {"x": existing})["x"] == expected


@covers("M9")
def test_the_documented_example_halves_a_quantity() -> None:
    changed = changed_by(
        "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';",
        a_view({"quantity": int_(10), "priority": "high"}),
    )
    assert changed is not None
    assert changed.system == {"CorrelationId": "low"}
    found = decode_message(changed.application_properties, typed=True).application_properties
    assert found == {"quantity": int_(5), "RuleName": "rule"}


@covers("M9")
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("MessageId", 0),
        ("To", 2),
        ("Label", 3),
        ("ReplyTo", 4),
        ("CorrelationId", 5),
        ("SessionId", 10),
        ("ReplyToSessionId", 12),
    ],
)
def test_a_system_property_of_the_copy_is_set_and_the_others_stay(name: str, field: int) -> None:
    before = decode_message(a_message({}).sections).properties
    after = decode_message(copied(f"SET sys.{name} = 'changed'").sections).properties
    assert before is not None
    assert after is not None
    assert after[field] == "changed"
    assert after[:field] + after[field + 1 :] == before[:field] + before[field + 1 :]


@covers("M9")
def test_the_content_type_of_the_copy_is_a_symbol() -> None:
    properties = decode_message(copied("SET sys.ContentType = 'text/plain'").sections, typed=True).properties
    assert properties is not None
    assert properties[6] == symbol("text/plain")


@covers("M9")
def test_a_system_property_set_to_null_is_gone() -> None:
    properties = decode_message(copied("SET sys.Label = NULL").sections).properties
    assert properties is not None
    assert properties[3] is None


@covers("M9")
def test_a_changed_session_takes_the_partition_key_along() -> None:
    copy = copied("SET sys.SessionId = 'other'")
    annotations = decode_message(copy.sections).message_annotations
    assert annotations is not None
    assert annotations["x-opt-partition-key"] == "other"
    assert (copy.session_id, copy.partition_key) == ("other", "other")
    assert session_id_of(copy) == "other"


@covers("M9")
def test_the_time_to_live_of_the_copy_can_be_set() -> None:
    assert copied("SET sys.TimeToLive = @hour + @hour").ttl_ms == 2 * HOUR_MS


@covers("M9")
def test_times_of_a_schedule_are_annotations() -> None:
    copy = copied("SET sys.ScheduledEnqueueTimeUtc = @moment")
    annotations = decode_message(copy.sections, typed=True).message_annotations
    assert annotations is not None
    assert annotations[symbol("x-opt-scheduled-enqueue-time")] == timestamp(MOMENT_MS)


@covers("M9")
def test_a_system_property_is_given_text_of_other_values_too() -> None:
    changed = changed_by("SET sys.Label = size * 2; SET sys.To = sys.Label + '!'", a_view())
    assert changed is not None
    assert changed.system == {"Label": "24", "To": "24!"}


@covers("M9")
def test_a_copy_is_a_message_like_any_other() -> None:
    """What an action made is read back just as if a client had sent it."""
    view = a_view({"color": "blue", "size": 12})
    changed = changed_by("SET sys.Label = 'new'; SET sys.SessionId = 's'; SET color = 'red'; REMOVE size", view)
    assert changed is not None
    copy = copy_with(view.message, changed)
    again = parse_message(copy.sections)
    assert again.sections == copy.sections
    assert (again.annotations_end, again.properties_end, again.application_end) == (
        copy.annotations_end,
        copy.properties_end,
        copy.application_end,
    )
    assert (again.session_id, again.partition_key, copy.wire_size) == ("s", "s", len(copy.sections))
    assert message_id_of(again) == "m-1"
    found = decode_message(copy.sections)
    assert found.body == b"body"
    assert found.application_properties is not None
    assert found.application_properties["color"] == "red"
    assert "size" not in found.application_properties


@covers("M9")
def test_the_message_itself_is_not_touched() -> None:
    view = a_view()
    before = view.message.sections
    changed = changed_by("SET color = 'red'; SET sys.Label = 'x'", view)
    assert changed is not None
    copy_with(view.message, changed)
    assert view.message.sections == before
    assert (view.user("color"), view.system(2)) == ("blue", "order")


@covers("M9")
def test_an_action_on_a_message_without_properties_makes_a_section() -> None:
    message = parse_message(b"\x00\x53\x75\xa0\x04body")
    changed = changed_by("SET a = 1; SET sys.Label = 'x'", MessageView(message, 1, MOMENT_MS))
    assert changed is not None
    found = decode_message(copy_with(message, changed).sections)
    assert found.application_properties == {"RuleName": "rule", "a": 1}
    assert found.property_at(3) == "x"
    assert found.body == b"body"


@covers("M9")
def test_properties_that_were_replaced_since_are_those_that_an_action_sees() -> None:
    message = a_message({"a": 1})
    changed = changed_by("SET b = a + 1", MessageView(message, 1, MOMENT_MS))
    assert changed is not None
    message.application_properties = changed.application_properties
    again = changed_by("SET c = b + 1", MessageView(message, 1, MOMENT_MS))
    assert again is not None
    copy = copy_with(message, again)
    assert decode_message(copy.sections).application_properties == {"a": 1, "b": 2, "c": 3, "RuleName": "rule"}
    delivered = decode_message(encode_delivery(copy, 1, 0, 0))
    assert delivered.application_properties == {"a": 1, "b": 2, "c": 3, "RuleName": "rule"}


@covers("M9", "F15")
@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SET x = color * 2", "a string and an integer"),
        ("SET x = 1; SET y = 1 / zero", "division by zero"),
        ("SET sys.MessageId = NULL", "cannot be null"),
        ("SET sys.SessionId = long", "at most 128 characters"),
        ("SET sys.Label = long", "at most 1024 characters"),
        ("SET sys.Label = @moment", "needs a string"),
        ("SET sys.TimeToLive = 5", "needs a duration"),
        ("SET sys.TimeToLive = @hour - @hour", "needs a duration above zero"),
        ("SET sys.ScheduledEnqueueTimeUtc = 5", "needs a date and time"),
        ("SET x = list", "no AMQP type"),
        ("SET x = broken", "cannot be read"),
        ("SET x = moment + @hour + forever + forever", "no AMQP type"),
    ],
)
def test_an_action_that_cannot_be_carried_out_changes_nothing_and_says_why(sql: str, reason: str) -> None:
    properties: Properties = {
        "color": "blue",
        "zero": 0,
        "long": "x" * 1_025,
        "list": [1],
        "broken": Typed(0x94, b"\x7f" * 16),
        "moment": timestamp(MOMENT_MS),
        "forever": Described("com.microsoft:timespan", 2**63 - 1),
    }
    view = a_view(properties)
    assert changed_by(sql, view) is None
    assert view.fault is not None
    assert reason in view.fault.reason


@covers("M9", "F15")
def test_an_action_cannot_make_the_properties_larger_than_they_may_be() -> None:
    view = a_view({"big": "x" * 40_000})
    assert changed_by("SET a = big", view) is None
    assert view.fault is not None
    assert "too large" in view.fault.reason
    assert changed_by("SET a = big; REMOVE big", view) is not None


@covers("M9")
@pytest.mark.parametrize(
    ("sql", "place", "reason"),
    [
        ("color = 'blue'", 1, "expected SET or REMOVE"),
        (";", 2, "expected SET or REMOVE"),
        ("SET", 4, "expected a property"),
        ("SET color", 10, "expected '='"),
        ("SET color =", 12, "expected a value"),
        ("SET color = 1 = 2", 15, "expected SET or REMOVE"),
        ("SET color = (size = 2)", 13, "a condition cannot stand"),
        ("SET 'color' = 1", 5, "expected a property"),
        ("SET color = 1, size = 2", 14, "expected SET or REMOVE"),
        ("REMOVE", 7, "expected a property"),
        ("REMOVE sys.Label", 8, "system properties cannot be removed"),
        ("REMOVE color size", 14, "expected SET or REMOVE"),
        ("SET sys.SequenceNumber = 1", 5, "sys.SequenceNumber cannot be set"),
        ("SET sys.EnqueuedTimeUtc = @moment", 5, "cannot be set"),
        ("SET sys.ExpiresAtUtc = @moment", 5, "cannot be set"),
        ("SET sys.Size = 1", 5, "cannot be set"),
        ("SET sys.DeliveryCount = 1", 5, "cannot be set"),
        ("SET sys.LockedUntilUtc = @moment", 5, "cannot be set"),
        ("SET sys.EnqueuedSequenceNumber = 1", 5, "cannot be set"),
        ("SET sys.DeadLetterSource = 'x'", 5, "cannot be set"),
        ("SET sys.State = 1", 5, "cannot be set"),
        ("SET sys.Unknown = 1", 9, "there is no system property"),
        ("SET a = upper('x')", 9, "there is no function"),
        ("SET a = @unknown", 9, "has no value"),
        ("UPDATE a = 1", 1, "expected SET or REMOVE"),
    ],
)
def test_a_wrong_action_is_refused_with_place_and_reason(sql: str, place: int, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        compile_rule(RuleDescription("rule", TrueFilter(), SqlAction(sql, PARAMETERS)))
    assert f"at character {place}:" in str(refusal.value)
    assert reason in str(refusal.value)


@covers("M9")
def test_parameters_of_an_action_are_its_own() -> None:
    action = SqlAction("SET due = @moment + @wait", (("moment", MOMENT), ("@wait", timedelta(milliseconds=5))))
    changed = compile_rule(RuleDescription("rule", TrueFilter(), action)).apply(a_view({}))
    assert changed is not None
    found = decode_message(changed.application_properties, typed=True).application_properties
    assert found == {"RuleName": "rule", "due": timestamp(MOMENT_MS + 5)}


@covers("M9", "F15")
def test_values_that_cannot_be_read_are_not_in_the_way_of_an_action() -> None:
    """Strangers' annotations and properties go along as the bytes that came."""
    broken = Encoded(b"\xa1\x02\xff\xfe")
    message = parse_message(
        message_annotations_section({"x-opt-own": broken, "x-opt-partition-key": "old"})
        + properties_section(message_id="m", to=None, subject="s", user_id=b"u")
        + application_properties_section({"broken": broken, "a": 1})
        + data_section(b"body")
    )
    changed = changed_by("SET sys.PartitionKey = 'new'; SET sys.ReplyTo = 'r'; SET a = 2", MessageView(message, 1, 0))
    assert changed is not None
    copy = copy_with(message, changed)
    assert copy.sections.count(b"\xa1\x02\xff\xfe") == 2
    assert (parse_message(copy.sections).partition_key, copy.partition_key) == ("new", "new")
