"""What entities, subscriptions and rules may be called.

Entity names are ASCII, so that 'the same name in other letters' has one meaning only: A-Z are a-z. Rule names
stand in no address, so more characters are allowed in them.
"""

from __future__ import annotations

import re
from typing import Final

from tandembus.errors import InvalidArgument
from tandembus.limits import Limits

MAX_SUBSCRIPTION_NAME_LENGTH: Final = 50
MAX_RULE_NAME_LENGTH: Final = 50
DEFAULT_RULE_NAME: Final = "$Default"
SUBSCRIPTIONS: Final = "Subscriptions"

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)
_NOT_IN_RULE_NAMES: Final = frozenset("/\\?#@*%")
_SHOWN_LENGTH: Final = 300


def subscription_path(topic: str, subscription: str) -> str:
    """How a subscription is addressed, and what it is found by (in lower case)."""
    return f"{topic}/{SUBSCRIPTIONS}/{subscription}"


def validate_name(name: str, limits: Limits) -> None:
    """The name of a queue or topic. Raises InvalidArgument."""
    if not name:
        raise InvalidArgument("An entity needs a name.")
    shown = _shown(name)
    if len(name) > limits.max_name_length:
        raise InvalidArgument(
            f"The entity name '{shown}' has {len(name)} characters; at most {limits.max_name_length} are allowed."
        )
    segments = name.split("/")
    for segment in segments:
        if not segment:
            raise InvalidArgument(
                f"The entity name '{shown}' has an empty path segment: '/' may only stand between other characters."
            )
        if not _SEGMENT.fullmatch(segment):
            raise InvalidArgument(
                f"The entity name '{shown}' is not valid: "
                "letters, digits, '.', '-', '_', '~' and '/' between segments are allowed."
            )
        if segment in (".", ".."):
            raise InvalidArgument(f"The entity name '{shown}' is not valid: no segment may be '.' or '..'.")
    if SUBSCRIPTIONS.lower() in [segment.lower() for segment in segments[1:]]:
        raise InvalidArgument(f"The entity name '{shown}' is not valid: 'Subscriptions' is a reserved segment.")


def validate_subscription_name(name: str) -> None:
    """One segment of a path. Raises InvalidArgument."""
    _check_length("subscription", name, MAX_SUBSCRIPTION_NAME_LENGTH)
    if not _SEGMENT.fullmatch(name) or name in (".", ".."):
        raise InvalidArgument(
            f"The subscription name '{name}' is not valid: letters, digits, '.', '-', '_' and '~' are allowed."
        )


def validate_rule_name(name: str) -> None:
    """Printable, without what separates the parts of a URI. Raises InvalidArgument."""
    _check_length("rule", name, MAX_RULE_NAME_LENGTH)
    is_clean = name.isprintable() and name == name.strip() and not _NOT_IN_RULE_NAMES & set(name)
    if not is_clean or name in (".", ".."):
        forbidden = " ".join(sorted(_NOT_IN_RULE_NAMES))
        raise InvalidArgument(
            f"The rule name {name!r} is not valid: printable characters other than {forbidden} are allowed, "
            "and no space at its ends."
        )


def _check_length(kind: str, name: str, most: int) -> None:
    if not name:
        raise InvalidArgument(f"A {kind} needs a name.")
    if len(name) > most:
        raise InvalidArgument(
            f"The {kind} name '{_shown(name)}' has {len(name)} characters; at most {most} are allowed."
        )


def _shown(name: str) -> str:
    return name if len(name) <= _SHOWN_LENGTH else name[:_SHOWN_LENGTH] + "..."
