"""Authorization rules (SAS policies of an entity) as they stand in its description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tandembus.descriptions import AuthorizationRule
from tandembus.errors import NotSupported
from tandembus.front_end.http.atom import element
from tandembus.front_end.http.elements import children_of, type_of
from tandembus.front_end.http.values import format_time
from tandembus.front_end.http.xml_reader import Element

_RIGHTS: Final = ("Manage", "Send", "Listen")
"""In the order in which the service lists them."""
_TYPE: Final = "SharedAccessAuthorizationRule"


def write_authorization_rules(rules: Sequence[AuthorizationRule]) -> str:
    return f"<AuthorizationRules>{''.join([_write(rule) for rule in rules])}</AuthorizationRules>"


def _write(rule: AuthorizationRule) -> str:
    rights = "".join([element("AccessRights", right) for right in _RIGHTS if right in rule.rights])
    return (
        f'<AuthorizationRule i:type="{_TYPE}">'
        "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"
        f"<Rights>{rights}</Rights>"
        + element("CreatedTime", format_time(rule.created_at))
        + element("ModifiedTime", format_time(rule.modified_at))
        + element("KeyName", rule.key_name)
        + element("PrimaryKey", rule.primary_key)
        + element("SecondaryKey", rule.secondary_key)
        + "</AuthorizationRule>"
    )


def read_authorization_rules(field: Element) -> tuple[AuthorizationRule, ...]:
    """Keys that are not given are empty: who keeps the rule makes them."""
    return tuple([_read(child) for child in field.children if child.name == "AuthorizationRule"])


def _read(rule: Element) -> AuthorizationRule:
    kind = type_of(rule) or _TYPE
    if kind != _TYPE:
        raise NotSupported(f"An AuthorizationRule of the type '{kind[:64]}' is not known here.")
    fields = children_of(rule)
    texts = {name: field.text.strip() for name, field in fields.items()}
    rights = fields.get("Rights")
    return AuthorizationRule(
        key_name=texts.get("KeyName", ""),
        primary_key=texts.get("PrimaryKey", ""),
        secondary_key=texts.get("SecondaryKey", ""),
        rights=frozenset([child.text.strip() for child in rights.children]) if rights is not None else frozenset(),
    )
