"""SAS policies as administration describes them: of one entity, or of the whole namespace."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Final

from tandembus.config import MIN_KEY_LENGTH
from tandembus.descriptions.ranges import out_of_range
from tandembus.errors import InvalidArgument

MAX_AUTHORIZATION_RULES: Final = 12

_RULE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,256}", re.ASCII)
_RULE_KEY: Final = re.compile(r"[!-:<-~]{1,256}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A SAS policy; one that belongs to an entity is worth nothing outside of it."""

    key_name: str
    primary_key: str = dataclasses.field(repr=False)
    secondary_key: str = dataclasses.field(repr=False)
    rights: frozenset[str] = frozenset()
    """Of 'Send', 'Listen' and 'Manage'."""
    created_at: float = 0.0
    modified_at: float = 0.0


def check_new_keys(rule: AuthorizationRule, known: AuthorizationRule | None) -> None:
    """Raises InvalidArgument for a key that is too short, unless the rule has it already."""
    kept = () if known is None else (known.primary_key, known.secondary_key)
    for key in (rule.primary_key, rule.secondary_key):
        if len(key) < MIN_KEY_LENGTH and key not in kept:
            raise InvalidArgument(
                f"The keys of AuthorizationRule '{rule.key_name}' need at least {MIN_KEY_LENGTH} characters."
            )


def check_authorization_rules(rules: tuple[AuthorizationRule, ...]) -> None:
    """Raises InvalidArgument with what is wrong."""
    if len(rules) > MAX_AUTHORIZATION_RULES:
        raise out_of_range("The number of AuthorizationRules", len(rules), f"up to {MAX_AUTHORIZATION_RULES}")
    if len({rule.key_name.lower() for rule in rules}) != len(rules):
        raise InvalidArgument("Two AuthorizationRules have the same KeyName.")
    for rule in rules:
        _check_authorization_rule(rule)


def _check_authorization_rule(rule: AuthorizationRule) -> None:
    if not _RULE_NAME.fullmatch(rule.key_name):
        raise InvalidArgument("The KeyName of an AuthorizationRule has 1 to 256 letters, digits, '.', '_' and '-'.")
    if not rule.rights or not rule.rights <= {"Send", "Listen", "Manage"}:
        raise InvalidArgument(
            f"AuthorizationRule '{rule.key_name}' needs one or more of the rights Send, Listen, Manage."
        )
    for key in (rule.primary_key, rule.secondary_key):
        if not _RULE_KEY.fullmatch(key):
            raise InvalidArgument(
                f"The keys of AuthorizationRule '{rule.key_name}' have 1 to 256 printable characters, "
                "no space and no semicolon."
            )
