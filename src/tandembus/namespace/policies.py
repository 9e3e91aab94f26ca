"""Where policies come from: the root key, the settings, the catalog, and the entities themselves."""

from __future__ import annotations

import functools
from typing import Final

from tandembus.config import ServeSettings
from tandembus.descriptions import QueueDescription
from tandembus.namespace.catalog import Catalog
from tandembus.security.claims import ALL_RIGHTS, Authorizer, Policy, Right
from tandembus.security.sas import ROOT_POLICY

_RIGHTS: Final = {right.value: right for right in Right}


def build_authorizer(settings: ServeSettings, root_key: str, catalog: Catalog) -> Authorizer:
    """Entities are looked up when a token asks for them, so what is true of them now is what counts."""
    return Authorizer(
        namespace_policies(settings, root_key, catalog),
        entity_policies=functools.partial(_policies_in, catalog),
        accept_any_jwt=settings.accept_any_jwt,
        max_token_size_bytes=settings.limits.max_token_size_bytes,
        max_token_lifetime_s=settings.limits.max_token_lifetime_s,
    )


def _policies_in(catalog: Catalog, key: str) -> list[Policy]:
    entry = catalog.find_queue(key)
    return entity_policies(entry.description) if entry is not None else []


def namespace_policies(settings: ServeSettings, root_key: str, catalog: Catalog) -> list[Policy]:
    """Later ones replace earlier ones of the same name: the root policy cannot be taken over."""
    configured = [
        Policy(one.name, one.key, one.secondary_key or "", frozenset(_RIGHTS[right] for right in one.rights))
        for one in settings.policies
    ]
    return [*catalog.policies(), *configured, Policy(ROOT_POLICY, root_key, "", ALL_RIGHTS)]


def entity_policies(description: QueueDescription) -> list[Policy]:
    """An entity's own authorization rules, as policies that hold for it and what lies below it."""
    return [
        Policy(
            rule.key_name,
            rule.primary_key,
            rule.secondary_key,
            frozenset(_RIGHTS[right] for right in rule.rights),
        )
        for rule in description.authorization_rules
    ]
