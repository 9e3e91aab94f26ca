"""SAS policies: where they come from, and how administration changes them.

Three sources: fixed ones (the root policy and the settings'), the namespace's own in the catalog, and those of queues
and topics, which stand in their descriptions. They are looked up when a token is shown or a live link is compared with
its claims, so a key that was taken back is worth nothing from that moment on.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from tandembus.config import EMULATOR_KEY, MIN_KEY_LENGTH, ServeSettings
from tandembus.descriptions import (
    AuthorizationRule,
    QueueDescription,
    TopicDescription,
    check_authorization_rules,
    check_new_keys,
)
from tandembus.errors import EntityNotFound
from tandembus.namespace.catalog_view import CatalogView
from tandembus.security.claims import Authorizer, Policy, Right, WebTokens
from tandembus.security.key_file import random_key
from tandembus.security.sas import ROOT_POLICY

SHORT_KEYS_NAMED: Final = 10
log = logging.getLogger("tandembus")

_RIGHTS: Final = {right.value: right for right in Right}


class KeyKind(Enum):
    """Which of a policy's two keys."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


def build_authorizer(
    settings: ServeSettings, root_key: str, catalog: CatalogView, web_tokens: WebTokens | None = None
) -> Authorizer:
    """Entities are looked up when a token asks for them, so what is true of them now is what counts."""
    return Authorizer(
        [policy_of(rule) for rule in fixed_policies(settings, root_key)],
        entity_policies=functools.partial(_policies_in, catalog),
        accept_any_jwt=settings.accept_any_jwt,
        web_tokens=web_tokens,
        max_token_size_bytes=settings.limits.max_token_size_bytes,
        max_token_lifetime_s=settings.limits.max_token_lifetime_s,
    )


def _policies_in(catalog: CatalogView, key: str) -> list[Policy]:
    if not key:
        return [policy_of(rule) for rule in catalog.policies()]
    entry = catalog.find_queue(key) or catalog.find_topic(key)
    return entity_policies(entry.description) if entry is not None else []


def fixed_policies(settings: ServeSettings, root_key: str) -> list[AuthorizationRule]:
    """What is decided outside of the namespace. Later ones replace earlier ones of the same name: the root policy
    cannot be taken over."""
    configured = [
        AuthorizationRule(one.name, one.key, one.secondary_key or "", frozenset(one.rights))
        for one in settings.policies
        if one.name != ROOT_POLICY
    ]
    second_key = EMULATOR_KEY if settings.accepts_emulator_key else ""
    return [*configured, AuthorizationRule(ROOT_POLICY, root_key, second_key, frozenset(_RIGHTS))]


def warn_of_short_keys(root_key: str, catalog: CatalogView, *, accepts_emulator_key: bool) -> None:
    """Logs which stored keys are shorter than a new one may be."""
    is_emulators = accepts_emulator_key and root_key == EMULATOR_KEY
    found = [ROOT_POLICY] if len(root_key) < MIN_KEY_LENGTH and not is_emulators else []
    found += [rule.key_name for rule in catalog.policies() if _is_short(rule)]
    of_entities = [(one.key, one.description.authorization_rules) for one in catalog.queues()]
    of_entities += [(one.key, one.description.authorization_rules) for one in catalog.topics()]
    for key, rules in of_entities:
        found += [f"{rule.key_name} of {key}" for rule in rules if _is_short(rule)]
    if found:
        more = f" and {len(found) - SHORT_KEYS_NAMED} more" if len(found) > SHORT_KEYS_NAMED else ""
        names = ", ".join(found[:SHORT_KEYS_NAMED]) + more
        text = "policies have keys of less than %d characters: %s; `tandembus policy regenerate` makes new ones"
        log.warning(text, MIN_KEY_LENGTH, names)


def _is_short(rule: AuthorizationRule) -> bool:
    return min(len(rule.primary_key), len(rule.secondary_key or rule.primary_key)) < MIN_KEY_LENGTH


def entity_policies(description: QueueDescription | TopicDescription) -> list[Policy]:
    """An entity's own authorization rules, as policies that hold for it and what lies below it."""
    return [policy_of(rule) for rule in description.authorization_rules]


def policy_of(rule: AuthorizationRule) -> Policy:
    rights = frozenset(_RIGHTS[right] for right in rule.rights)
    return Policy(rule.key_name, rule.primary_key, rule.secondary_key, rights)


# Changes of a list of policies, the namespace's or an entity's.


def find_policy(rules: Sequence[AuthorizationRule], name: str) -> AuthorizationRule:
    """Raises EntityNotFound."""
    for rule in rules:
        if rule.key_name == name:
            return rule
    raise EntityNotFound(f"The policy '{name[:64]}' could not be found.")


def completed(rules: Sequence[AuthorizationRule], asked: AuthorizationRule, now: float) -> AuthorizationRule:
    """What is asked for, a key that is not given being kept or made. Raises InvalidArgument."""
    old = next((rule for rule in rules if rule.key_name == asked.key_name), None)
    rule = replace(
        asked,
        primary_key=asked.primary_key or (old.primary_key if old is not None else random_key()),
        secondary_key=asked.secondary_key or (old.secondary_key if old is not None else random_key()),
        created_at=old.created_at if old is not None else now,
        modified_at=now,
    )
    check_authorization_rules((*without(rules, rule.key_name), rule))
    check_new_keys(rule, old)
    return rule


def with_new_key(rules: Sequence[AuthorizationRule], name: str, key: KeyKind, now: float) -> AuthorizationRule:
    """The policy with one of its keys made anew; the other stays, so that clients can move over. Raises
    EntityNotFound."""
    rule = replace(find_policy(rules, name), modified_at=now)
    if key is KeyKind.PRIMARY:
        return replace(rule, primary_key=random_key())
    return replace(rule, secondary_key=random_key())


def without(rules: Sequence[AuthorizationRule], name: str) -> tuple[AuthorizationRule, ...]:
    return tuple(rule for rule in rules if rule.key_name != name)


def put_in(rules: Sequence[AuthorizationRule], changed: AuthorizationRule) -> tuple[AuthorizationRule, ...]:
    """In the place of the one of its name, or at the end."""
    if any(rule.key_name == changed.key_name for rule in rules):
        return tuple(changed if rule.key_name == changed.key_name else rule for rule in rules)
    return (*rules, changed)
