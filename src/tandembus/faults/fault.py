"""One fault: what is hit, in which way, how often and for how long. Plain data, and what is wrong with it.

What is asked for is checked here once, wherever it was asked: over HTTP, by the command line, in a test.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.descriptions.names import SUBSCRIPTIONS, validate_name, validate_subscription_name
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits
from tandembus.security.scopes import fold

MAX_LATENCY_MS: Final = 600_000
MAX_FOR_S: Final = 30 * 86_400.0
MAX_SHOWN: Final = 100

FIELDS: Final = ("target", "kind", "latency_ms", "probability", "for_s")
READ_ONLY: Final = ("id", "state", "started_at", "ends_in_s")
"""What is told of a fault; sent back, it changes nothing."""

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)
TARGET_FORMS: Final = "namespace, entity/NAME, fragment/NAME/INDEX, broker/INDEX or store/INDEX"


class Kind(Enum):
    UNAVAILABLE = "unavailable"
    SLOW = "slow"
    THROTTLED = "throttled"
    DISK_FULL = "disk-full"


class Scope(Enum):
    NAMESPACE = "namespace"
    ENTITY = "entity"
    FRAGMENT = "fragment"
    BROKER = "broker"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Target:
    """What a fault hits."""

    scope: Scope
    name: str = ""
    """Of an entity, as it was written."""
    index: int = 0
    """Of a fragment, broker or store; all are counted from 0."""

    @property
    def key(self) -> str:
        """What the entity is found by."""
        return fold(self.name)

    def __str__(self) -> str:
        match self.scope:
            case Scope.NAMESPACE:
                return "namespace"
            case Scope.ENTITY:
                return f"entity/{self.name}"
            case Scope.FRAGMENT:
                return f"fragment/{self.name}/{self.index}"
            case Scope.BROKER | Scope.STORE:
                return f"{self.scope.value}/{self.index}"


@dataclass(frozen=True, slots=True)
class Fault:
    id: str
    target: Target
    kind: Kind
    latency_ms: int = 0
    """How much longer everything takes; of a slow one only."""
    probability: float = 1.0
    """With which an operation is hit, each for itself."""
    for_s: float | None = None
    """After so long it ends by itself; None: when somebody clears it."""

    def document(self) -> dict[str, object]:
        """As it was asked for: what `read_fault` reads."""
        return {
            "target": str(self.target),
            "kind": self.kind.value,
            "latency_ms": self.latency_ms,
            "probability": self.probability,
            "for_s": self.for_s,
        }


@dataclass(frozen=True, slots=True)
class Topology:
    """What there is to be hit."""

    stores: int = 1
    brokers: int = 1
    """Store j belongs to broker j modulo this."""


def read_fault(fault_id: str, document: object) -> Fault:
    """From parsed JSON. Raises InvalidArgument with the field that is wrong."""
    check_id(fault_id)
    if not isinstance(document, dict):
        raise InvalidArgument("A fault must be a JSON object with 'target' and 'kind'.")
    for name in document:
        if name not in FIELDS and name not in READ_ONLY:
            raise InvalidArgument(f"A fault has no '{_shown(name)}'; it has {', '.join(FIELDS)}.")
    if document.get("id", fault_id) != fault_id:
        raise InvalidArgument("The fault's id is the one in its address.")
    kind = _kind(document)
    return Fault(
        fault_id,
        parse_target(_text(document, "target")),
        kind,
        _latency_ms(document, kind),
        _probability(document),
        _for_s(document),
    )


def check_id(fault_id: str) -> None:
    if _ID.fullmatch(fault_id) is None:
        raise InvalidArgument(
            f"The fault id '{_shown(fault_id)}' is not valid: 1 to 64 letters, digits, '.', '_' and '-' are."
        )


def parse_target(text: str) -> Target:
    """Scopes are written in lower case; names of entities in whatever letters."""
    scope, _, rest = text.partition("/")
    match scope:
        case "namespace" if not rest and text == scope:
            return Target(Scope.NAMESPACE)
        case "entity":
            return Target(Scope.ENTITY, _entity(rest, text))
        case "fragment":
            name, _, number = rest.rpartition("/")
            if not name:
                raise _no_target(text)
            index = _index(number, text)
            if index >= FRAGMENT_COUNT:
                raise InvalidArgument(f"'{_shown(text)}': fragments have the numbers 0 to {FRAGMENT_COUNT - 1}.")
            return Target(Scope.FRAGMENT, _entity(name, text), index)
        case "broker" | "store":
            return Target(Scope(scope), "", _index(rest, text))
    raise _no_target(text)


def check_is_there(target: Target, topology: Topology, fragments_of: Callable[[str], int | None]) -> bool:
    """Whether the target exists. An entity may come later, so a fault can wait for it: False. A broker or store never
    will, and neither will a fragment of an entity that has fewer: InvalidArgument.

    `fragments_of` says how many fragments the entity of a path has; None: there is none."""
    if target.scope is Scope.BROKER:
        _check_index(target, topology.brokers)
    elif target.scope is Scope.STORE:
        _check_index(target, topology.stores)
    elif target.name:
        count = fragments_of(target.key)
        if count is None:
            return False
        if target.scope is Scope.FRAGMENT and target.index >= count:
            raise InvalidArgument(f"'{target}': '{target.name}' is not partitioned, its only fragment is number 0.")
    return True


def _check_index(target: Target, count: int) -> None:
    if target.index >= count:
        kind = target.scope.value
        there = f"only {kind} 0" if count == 1 else f"the {kind}s 0 to {count - 1}"
        raise InvalidArgument(f"There is no '{target}': this namespace has {there}.")


def _no_target(text: str) -> InvalidArgument:
    return InvalidArgument(f"'{_shown(text)}' is no target of a fault: write {TARGET_FORMS}.")


def _entity(name: str, text: str) -> str:
    if not (name.isascii() and name.isprintable()):
        raise _no_target(text)
    rest, _, subscription = name.rpartition("/")
    topic, _, word = rest.rpartition("/")
    try:
        if topic and fold(word) == fold(SUBSCRIPTIONS):
            validate_name(topic, Limits())
            validate_subscription_name(subscription)
        else:
            validate_name(name, Limits())
    except InvalidArgument as error:
        raise InvalidArgument(f"'{_shown(text)}' is no target of a fault. {error}") from None
    return name


def _index(number: str, text: str) -> int:
    if _INDEX.fullmatch(number) is None:
        raise _no_target(text)
    return int(number)


def _kind(document: Mapping[str, object]) -> Kind:
    text = _text(document, "kind")
    kinds = {kind.value: kind for kind in Kind}
    if text not in kinds:
        raise InvalidArgument(f"kind: '{_shown(text)}' is none of {', '.join(kinds)}.")
    return kinds[text]


def _latency_ms(document: Mapping[str, object], kind: Kind) -> int:
    latency = document.get("latency_ms")
    if kind is not Kind.SLOW:
        if latency not in (None, 0) or isinstance(latency, bool):
            raise InvalidArgument("latency_ms: only a slow fault has one.")
        return 0
    if latency is None:
        raise InvalidArgument("latency_ms: a slow fault needs one, in milliseconds.")
    if isinstance(latency, bool) or not isinstance(latency, int) or not 1 <= latency <= MAX_LATENCY_MS:
        raise InvalidArgument(f"latency_ms must be a whole number from 1 to {MAX_LATENCY_MS}.")
    return latency


def _probability(document: Mapping[str, object]) -> float:
    value = _number(document, "probability")
    if value is None:
        return 1.0
    if not 0.0 < value <= 1.0:
        raise InvalidArgument("probability must be a number above 0 and up to 1.")
    return value


def _for_s(document: Mapping[str, object]) -> float | None:
    value = _number(document, "for_s")
    if value is not None and not 0.0 < value <= MAX_FOR_S:
        raise InvalidArgument(f"for_s must be a number of seconds above 0 and up to {MAX_FOR_S:.0f}.")
    return value


def _number(document: Mapping[str, object], name: str) -> float | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{name} must be a number.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidArgument(f"{name} must be a number.")
    return number


def _text(document: Mapping[str, object], name: str) -> str:
    value = document.get(name)
    if value is None:
        raise InvalidArgument(f"A fault needs a '{name}'.")
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} must be a string.")
    return value


def _shown(text: str) -> str:
    """In an error's text: short, and nothing that moves a terminal."""
    short = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return short if short.isprintable() else ascii(short)[1:-1]
