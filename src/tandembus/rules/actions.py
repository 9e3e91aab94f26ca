"""SQL actions: `SET property = expression` and `REMOVE property`, one after the other, on one subscription's copy.

Each statement sees what those before it did. Nothing is half done: when one statement cannot be carried out, the action
as a whole has failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from tandembus.amqp.encoding.codec import encode
from tandembus.errors import BusError
from tandembus.rules import system_properties as system
from tandembus.rules.changed_message import ChangedMessage, section_with
from tandembus.rules.conversion import converted
from tandembus.rules.expressions import Expression, SystemProperty, UserProperty
from tandembus.rules.message_view import MAX_STEPS, MessageView
from tandembus.rules.sql_parser import Parser
from tandembus.rules.tokens import END, Token, is_unicode, sql_error
from tandembus.rules.values import Duration, Fault, Instant, kind_of, text_of
from tandembus.rules.wire_values import UNREPRESENTABLE, encodable

MAX_PROPERTIES_BYTES: Final = 64 * 1024
"""An action cannot make the properties of a message larger than those of any other message may be."""
MAX_SYSTEM_TEXT: Final = 1_024
MAX_ID_CHARACTERS: Final = 128
RULE_NAME: Final = "RuleName"
"""The property that tells which rule made a copy."""

_LIMITED_IDS: Final = frozenset((system.MESSAGE_ID, system.SESSION_ID, system.PARTITION_KEY, system.VIA_PARTITION_KEY))
_TOO_LARGE: Final = Fault("the properties grow too large")


@final
class Changes:
    """What the statements of an action have done so far."""

    __slots__ = ("size_bytes", "system", "user", "view")

    def __init__(self, view: MessageView) -> None:
        self.view: Final = view.changing()
        self.user: Final[dict[str, tuple[bytes, bytes]]] = {}
        self.system: Final[dict[str, object]] = {}
        self.size_bytes: i64 = 0
        """Of all values that were set, also of those that were replaced since."""

    def type_code(self, name: str) -> i64:
        """The constructor of a property's value as it is now; -1 when it is not there."""
        change = self.user.get(name)
        if change is not None:
            return i64(change[1][0]) if change[1] else -1
        place = self.view.places().get(name)
        return -1 if place is None else i64(self.view.section()[place])


class Statement:
    __slots__ = ()

    def carry_out(self, changes: Changes) -> Fault | None:
        raise AssertionError("every statement carries itself out")


@final
class SetUserProperty(Statement):
    __slots__ = ("_expression", "_name", "_spelled")

    def __init__(self, spelled: str, expression: Expression) -> None:
        self._name: Final = spelled.lower()
        self._spelled: Final = encode(spelled)
        self._expression: Final = expression

    def carry_out(self, changes: Changes) -> Fault | None:
        value = self._expression.evaluate(changes.view)
        if isinstance(value, Fault):
            return value
        kept = converted(value, changes.type_code(self._name))
        wire = encodable(kept.encodable)
        if isinstance(wire, Fault):
            return wire
        try:
            encoded = encode(wire)
        except BusError:
            return UNREPRESENTABLE
        changes.size_bytes += len(encoded)
        if changes.size_bytes > MAX_PROPERTIES_BYTES:
            return _TOO_LARGE
        changes.user[self._name] = (self._spelled, encoded)
        changes.view.set_user(self._name, kept.value)
        return None


@final
class RemoveUserProperty(Statement):
    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name: Final = name.lower()

    def carry_out(self, changes: Changes) -> Fault | None:
        changes.user[self._name] = (b"", b"")
        changes.view.remove_user(self._name)
        return None


@final
class SetSystemProperty(Statement):
    __slots__ = ("_expression", "_index")

    def __init__(self, index: int, expression: Expression) -> None:
        self._index: Final = index
        self._expression: Final = expression

    def carry_out(self, changes: Changes) -> Fault | None:
        value = self._expression.evaluate(changes.view)
        if isinstance(value, Fault):
            return value
        value = _system_value(self._index, value)
        if isinstance(value, Fault):
            return value
        self._write(changes, self._index, value)
        if self._index == system.SESSION_ID and changes.view.system(system.PARTITION_KEY) is not None:
            # The two must be equal wherever the copy goes next.
            self._write(changes, system.PARTITION_KEY, value)
        return None

    def _write(self, changes: Changes, index: int, value: object) -> None:
        changes.system[system.NAMES[index]] = value
        changes.view.set_system(index, value)


def _system_value(index: int, value: object) -> object:
    """The value as this property can hold it, or a Fault."""
    name = system.NAMES[index]
    if index == system.TIME_TO_LIVE:
        if isinstance(value, Duration) and value.ticks > 0:
            return value
        return Fault(f"sys.{name} needs a duration above zero, not {kind_of(value)}")
    if index == system.SCHEDULED_ENQUEUE_TIME:
        return value if value is None or isinstance(value, Instant) else _wrong(name, "a date and time", value)
    if value is None:
        return Fault("sys.MessageId cannot be null") if index == system.MESSAGE_ID else None
    text = text_of(value)
    if text is None:
        return _wrong(name, "a string", value)
    most = MAX_ID_CHARACTERS if index in _LIMITED_IDS else MAX_SYSTEM_TEXT
    if len(text) > most:
        return Fault(f"sys.{name} has at most {most} characters")
    return text if is_unicode(text) else UNREPRESENTABLE


def _wrong(name: str, needed: str, value: object) -> Fault:
    return Fault(f"sys.{name} needs {needed}, not {kind_of(value)}")


@final
class Action:
    """The statements of a rule's action."""

    __slots__ = ("_name_change", "_statements")

    def __init__(self, statements: list[Statement], rule_name: str) -> None:
        self._statements: Final = statements
        self._name_change: Final = (encode(RULE_NAME), encode(rule_name))

    def apply(self, view: MessageView) -> ChangedMessage | None:
        """The changes, or None with the view's `fault` saying why."""
        changes = Changes(view)
        changes.user[RULE_NAME.lower()] = self._name_change
        changes.view.steps_left = MAX_STEPS
        for statement in self._statements:
            fault = statement.carry_out(changes)
            if fault is not None:
                view.fault = fault
                return None
        section = section_with(changes.view.section(), changes.user)
        if len(section) > MAX_PROPERTIES_BYTES:
            view.fault = _TOO_LARGE
            return None
        return ChangedMessage(section, changes.system)


def parse_action(sql: str, parameters: Mapping[str, object], rule_name: str) -> Action:
    """Statements with or without semicolons between them."""
    parser = Parser(sql, parameters)
    statements: list[Statement] = []
    while parser.token.kind != END:
        if not parser.accept(";"):
            statements.append(_statement(parser))
    if not statements:
        raise parser.unexpected("SET or REMOVE")
    return Action(statements, rule_name)


def _statement(parser: Parser) -> Statement:
    if parser.accept("SET"):
        start = parser.token
        target = parser.property_()
        parser.expect("=")
        expression = parser.expression()
        if isinstance(target, UserProperty):
            return SetUserProperty(target.spelled, expression)
        assert isinstance(target, SystemProperty)
        _check_settable(target, start)
        return SetSystemProperty(int(target.index), expression)
    if parser.accept("REMOVE"):
        start = parser.token
        target = parser.property_()
        if not isinstance(target, UserProperty):
            raise sql_error(start.at, "system properties cannot be removed")
        return RemoveUserProperty(target.name)
    raise parser.unexpected("SET or REMOVE")


def _check_settable(target: SystemProperty, start: Token) -> None:
    if target.index not in system.SETTABLE:
        raise sql_error(start.at, f"sys.{system.NAMES[target.index]} cannot be set: it is the broker's")
