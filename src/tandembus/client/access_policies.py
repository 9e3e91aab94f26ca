"""Shared access policies of an entity, as they stand in its description."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field, replace
from typing import Final
from xml.etree import ElementTree

from tandembus.client.atom import CONNECT, INSTANCE_TYPE, add

RIGHTS: Final = ("Send", "Listen", "Manage")
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who knows one of the two keys has the rights. Two of them, so that clients can change over one by one."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(repr=False, default="")
    secondary_key: str = field(repr=False, default="")

    def with_new_key(self, secondary: bool, key: str | None = None) -> AccessPolicy:
        """The same policy with one key made anew; the other stays as it is."""
        made = key or new_key()
        return replace(self, secondary_key=made) if secondary else replace(self, primary_key=made)


def new_key() -> str:
    """As the service makes them: 256 random bits in base64."""
    return base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def add_policies(description: ElementTree.Element, policies: tuple[AccessPolicy, ...]) -> None:
    rules = add(description, "AuthorizationRules")
    for policy in policies:
        rule = add(rules, "AuthorizationRule")
        rule.set(INSTANCE_TYPE, "SharedAccessAuthorizationRule")
        add(rule, "ClaimType", "SharedAccessKey")
        add(rule, "ClaimValue", "None")
        rights = add(rule, "Rights")
        for right in policy.rights:
            add(rights, "AccessRights", right)
        add(rule, "KeyName", policy.name)
        add(rule, "PrimaryKey", policy.primary_key)
        add(rule, "SecondaryKey", policy.secondary_key)


def policies_in(description: ElementTree.Element) -> tuple[AccessPolicy, ...] | None:
    """None where the service does not tell: then nothing may be said about them when it is sent back."""
    rules = description.find(f"{CONNECT}AuthorizationRules")
    return None if rules is None else tuple([_policy_of(rule) for rule in rules])


def _policy_of(rule: ElementTree.Element) -> AccessPolicy:
    rights = [(each.text or "").strip() for each in rule.iter(f"{CONNECT}AccessRights")]
    return AccessPolicy(
        name=(rule.findtext(f"{CONNECT}KeyName") or "").strip(),
        rights=tuple(sorted(rights)),
        primary_key=(rule.findtext(f"{CONNECT}PrimaryKey") or "").strip(),
        secondary_key=(rule.findtext(f"{CONNECT}SecondaryKey") or "").strip(),
    )
