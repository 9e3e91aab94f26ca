"""Shared access policies as a client has them."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field, replace
from typing import Final

from tandembus.descriptions import AuthorizationRule

RIGHTS: Final = ("Send", "Listen", "Manage")
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Anybody who knows one of the two keys has the rights. There are two so that clients can change one by one."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(repr=False, default="")
    secondary_key: str = field(repr=False, default="")

    def with_new_key(self, secondary: bool, key: str | None = None) -> AccessPolicy:
        """The same policy with one new key; the other stays as it is."""
        made = key or new_key()
        return replace(self, secondary_key=made) if secondary else replace(self, primary_key=made)

    @staticmethod
    def of_rule(rule: AuthorizationRule) -> AccessPolicy:
        return AccessPolicy(rule.key_name, tuple(sorted(rule.rights)), rule.primary_key, rule.secondary_key)

    def as_rule(self) -> AuthorizationRule:
        return AuthorizationRule(self.name, self.primary_key, self.secondary_key, frozenset(self.rights))


def new_key() -> str:
    """As the service makes them: 256 random bits in base64."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")
