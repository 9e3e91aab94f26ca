"""Where the authorizer's policies come from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tandembus.config import PolicySetting, ServeSettings
from tandembus.descriptions import AuthorizationRule, QueueDescription
from tandembus.errors import Unauthorized
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.policies import build_authorizer, entity_policies
from tandembus.security.claims import Right
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers

NOW = 1_700_000_000.0
LATER = NOW + 3_600
RULE = AuthorizationRule("own", "own-key", "own-second", frozenset({"Listen"}))


@covers("M15")
async def test_keys_of_the_namespace_of_the_settings_and_of_the_entities_all_count(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path, Limits(), NOW)
    description = QueueDescription("Orders", authorization_rules=(RULE,))
    entry = await catalog.begin_create(description, Limits(), NOW)
    await catalog.finish_create(entry, NOW)
    await catalog.put_policy(AuthorizationRule("kept", "kept-key", "", frozenset({"Send"})), NOW)
    settings = ServeSettings(policies=(PolicySetting("till", "till-key", "till-second", ("Send",)),))
    authorizer = build_authorizer(settings, "root-key", catalog)
    assert authorizer.verify_plain(ROOT_POLICY, "root-key").allows(Right.MANAGE, "x", NOW)
    assert authorizer.verify_plain("till", "till-second").rights == {Right.SEND}
    assert authorizer.verify_plain("kept", "kept-key").rights == {Right.SEND}
    token = make_token("sb://localhost/orders", "own", "own-second", LATER)
    assert authorizer.verify_token(token, "ORDERS/$management", NOW).rights == {Right.LISTEN}
    with pytest.raises(Unauthorized):
        authorizer.verify_token(make_token("sb://localhost/", "own", "own-key", LATER), None, NOW)
    catalog.close()


@covers("M15", "F16")
async def test_an_entitys_keys_are_worth_nothing_once_they_or_the_entity_are_gone(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path, Limits(), NOW)
    description = QueueDescription("Orders", authorization_rules=(RULE,))
    await catalog.finish_create(await catalog.begin_create(description, Limits(), NOW), NOW)
    authorizer = build_authorizer(ServeSettings(), "root-key", catalog)
    token = make_token("sb://localhost/orders", "own", "own-key", LATER)
    claims = authorizer.verify_token(token, "orders", NOW)
    await catalog.update_queue(QueueDescription("orders", authorization_rules=(replace(RULE, primary_key="new"),)), NOW)
    assert not authorizer.is_current(claims, NOW)
    await catalog.update_queue(description, NOW)
    assert authorizer.is_current(claims, NOW)
    await catalog.delete_queue("orders", NOW)
    assert not authorizer.is_current(claims, NOW)
    with pytest.raises(Unauthorized):
        authorizer.verify_token(token, "orders", NOW)
    catalog.close()


@covers("M15", "F16")
async def test_nothing_replaces_the_root_policy(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path, Limits(), NOW)
    await catalog.put_policy(AuthorizationRule(ROOT_POLICY, "kept-key", "", frozenset({"Manage"})), NOW)
    settings = ServeSettings(policies=(PolicySetting(ROOT_POLICY, "set-key", None, ("Manage",)),))
    authorizer = build_authorizer(settings, "root-key", catalog)
    catalog.close()
    for key in ("kept-key", "set-key"):
        with pytest.raises(Unauthorized):
            authorizer.verify_plain(ROOT_POLICY, key)


@covers("M15")
async def test_limits_of_tokens_are_settings(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path, Limits(), NOW)
    limits = Limits(max_token_size_bytes=300, max_token_lifetime_s=60.0)
    authorizer = build_authorizer(ServeSettings(limits=limits), "root-key", catalog)
    catalog.close()
    with pytest.raises(Unauthorized, match="too far"):
        authorizer.verify_token(make_token("sb://h/", ROOT_POLICY, "root-key", LATER), None, NOW)
    with pytest.raises(Unauthorized, match="larger than 300"):
        authorizer.verify_token(make_token("sb://h/" + "x" * 300, ROOT_POLICY, "root-key", NOW + 50), None, NOW)
    assert authorizer.verify_token(make_token("sb://h/", ROOT_POLICY, "root-key", NOW + 50), None, NOW)


def test_an_entity_without_rules_has_no_policies() -> None:
    assert entity_policies(QueueDescription("orders")) == []
