"""Where the authorizer's policies come from, and how they are changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tandembus.config import PolicySetting, ServeSettings
from tandembus.descriptions import AuthorizationRule, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.errors import EntityNotFound, InvalidArgument, InvalidOperation, Unauthorized
from tandembus.limits import Limits
from tandembus.namespace.catalog import Catalog
from tandembus.namespace.policies import KeyKind, build_authorizer, entity_policies, fixed_policies
from tandembus.security.claims import Right
from tandembus.security.key_file import ensure_key, renew_key
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.unit.namespace.namespace_lives import Life, Machine

NOW = 1_700_000_000.0
LATER = NOW + 3_600
KEY, SECOND = "k" * 16, "l" * 16
RULE = AuthorizationRule("own", "own-key-0123456789", "own-second-0123456789", frozenset({"Listen"}))


@covers("M15")
async def test_keys_of_the_namespace_of_the_settings_and_of_the_entities_all_count(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path, Limits(), NOW)
    description = QueueDescription("Orders", authorization_rules=(RULE,))
    entry = await catalog.begin_create(description, Limits(), NOW)
    await catalog.finish_create(entry, NOW)
    await catalog.put_policy(AuthorizationRule("kept", "kept-key", "", frozenset({"Send"})), NOW)
    settings = ServeSettings(policies=(PolicySetting("till", "till-key-0123456789", "till-second-0123", ("Send",)),))
    authorizer = build_authorizer(settings, "root-key", catalog)
    assert authorizer.verify_plain(ROOT_POLICY, "root-key").allows(Right.MANAGE, "x", NOW)
    assert authorizer.verify_plain("till", "till-second-0123").rights == {Right.SEND}
    assert authorizer.verify_plain("kept", "kept-key").rights == {Right.SEND}
    token = make_token("sb://localhost/orders", "own", "own-second-0123456789", LATER)
    assert authorizer.verify_token(token, "ORDERS/$management", NOW).rights == {Right.LISTEN}
    with pytest.raises(Unauthorized):
        authorizer.verify_token(make_token("sb://localhost/", "own", "own-key-0123456789", LATER), None, NOW)
    catalog.close()


@covers("M15", "F16")
async def test_an_entitys_keys_are_worth_nothing_once_they_or_the_entity_are_gone(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path, Limits(), NOW)
    description = QueueDescription("Orders", authorization_rules=(RULE,))
    await catalog.finish_create(await catalog.begin_create(description, Limits(), NOW), NOW)
    authorizer = build_authorizer(ServeSettings(), "root-key", catalog)
    token = make_token("sb://localhost/orders", "own", "own-key-0123456789", LATER)
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
    settings = ServeSettings(policies=(PolicySetting(ROOT_POLICY, "set-key-0123456789", None, ("Manage",)),))
    authorizer = build_authorizer(settings, "root-key", catalog)
    catalog.close()
    for key in ("kept-key", "set-key-0123456789"):
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


# Changing them.


def signed(name: str, key: str, path: str = "") -> str:
    return make_token(f"sb://localhost/{path}", name, key, LATER)


class Administered:
    """A namespace whose policies are changed, and the authorizer that goes by them."""

    def __init__(self, life: Life, settings: ServeSettings | None = None) -> None:
        settings = settings or ServeSettings()
        self.namespace = life.namespace
        self.authorizer = build_authorizer(settings, "root-key", life.catalog)
        self.namespace.fixed_policies = fixed_policies(settings, "root-key")
        self.now = NOW

    def works(self, rule: AuthorizationRule, key: str, path: str = "") -> bool:
        try:
            self.authorizer.verify_token(signed(rule.key_name, key, path), path or None, NOW)
        except Unauthorized:
            return False
        return True


@covers("M15")
async def test_a_policy_of_the_namespace_works_at_once_and_also_in_the_next_life() -> None:
    machine = Machine()
    async with machine.life() as life:
        one = Administered(life)
        made = await one.namespace.put_policy(AuthorizationRule("till", "", "", frozenset({"Send"})))
        assert len(made.primary_key) >= 40
        assert made.primary_key != made.secondary_key
        assert one.works(made, made.primary_key)
        assert one.works(made, made.secondary_key)
        assert one.authorizer.verify_plain("till", made.primary_key).rights == {Right.SEND}
        assert [rule.key_name for rule in one.namespace.policies()] == [ROOT_POLICY, "till"]
    async with machine.life() as life:
        assert Administered(life).works(made, made.primary_key)


@covers("M15", "F16")
@pytest.mark.parametrize("path", ["", "orders", "news"])
@pytest.mark.parametrize("kind", KeyKind)
async def test_a_regenerated_key_ends_the_old_one_at_once_and_leaves_the_other(path: str, kind: KeyKind) -> None:
    async with Machine().life() as life:
        one = Administered(life)
        await life.namespace.create_queue(QueueDescription("orders"))
        await life.namespace.create_topic(TopicDescription("news"))
        made = await one.namespace.put_policy(AuthorizationRule("till", "", "", frozenset({"Listen"})), path)
        old = made.primary_key if kind is KeyKind.PRIMARY else made.secondary_key
        other = made.secondary_key if kind is KeyKind.PRIMARY else made.primary_key
        claims = one.authorizer.verify_token(signed("till", old, path), path or None, NOW)
        changed = await one.namespace.regenerate_key("till", kind, path)
        assert not one.authorizer.is_current(claims, NOW)
        assert not one.works(made, old, path)
        assert one.works(made, other, path)
        new = changed.primary_key if kind is KeyKind.PRIMARY else changed.secondary_key
        assert one.works(made, new, path)
        assert one.namespace.policies(path)[-1] == changed


@covers("M15", "F16")
@pytest.mark.parametrize("path", ["", "orders", "news"])
async def test_a_removed_policy_is_worth_nothing(path: str) -> None:
    async with Machine().life() as life:
        one = Administered(life)
        await life.namespace.create_queue(QueueDescription("orders"))
        await life.namespace.create_topic(TopicDescription("news"))
        made = await one.namespace.put_policy(AuthorizationRule("till", KEY, SECOND, frozenset({"Send"})), path)
        claims = one.authorizer.verify_token(signed("till", KEY, path), path or None, NOW)
        await one.namespace.remove_policy("till", path)
        assert not one.authorizer.is_current(claims, NOW)
        assert not one.works(made, KEY, path)
        with pytest.raises(EntityNotFound):
            await one.namespace.remove_policy("till", path)
        with pytest.raises(EntityNotFound):
            await one.namespace.regenerate_key("till", KeyKind.PRIMARY, path)


@covers("M9", "M15", "F16")
async def test_a_topics_policy_holds_for_its_subscriptions_and_nowhere_else() -> None:
    async with Machine().life() as life:
        one = Administered(life)
        for name in ("news", "news2"):
            await life.namespace.create_topic(TopicDescription(name))
        await life.namespace.create_subscription(SubscriptionDescription("news", "audit"))
        made = await one.namespace.put_policy(AuthorizationRule("own", KEY, SECOND, frozenset({"Listen"})), "News")
        for path in ("news", "news/subscriptions/audit", "news/subscriptions/audit/$deadletterqueue"):
            assert one.works(made, KEY, path)
        for path in ("", "news2", "new"):
            assert not one.works(made, KEY, path)
        with pytest.raises(EntityNotFound):
            await one.namespace.put_policy(
                AuthorizationRule("own", KEY, SECOND, frozenset({"Send"})), "news/subscriptions/audit"
            )


@covers("M15")
async def test_other_rights_keep_the_keys_and_narrow_live_claims() -> None:
    async with Machine().life() as life:
        one = Administered(life)
        made = await one.namespace.put_policy(AuthorizationRule("till", "", "", frozenset({"Send", "Listen"})))
        claims = one.authorizer.verify_token(signed("till", made.primary_key), None, NOW)
        life.clock.advance(5.0)
        changed = await one.namespace.put_policy(AuthorizationRule("till", "", "", frozenset({"Listen"})))
        assert (changed.primary_key, changed.secondary_key) == (made.primary_key, made.secondary_key)
        assert (changed.created_at, changed.modified_at) == (made.created_at, made.created_at + 5.0)
        assert not one.authorizer.is_current(claims, NOW)


@covers("M15", "F16")
async def test_the_root_policy_and_those_of_the_settings_cannot_be_changed_here() -> None:
    settings = ServeSettings(policies=(PolicySetting("till", "till-key-0123456789", None, ("Send",)),))
    async with Machine().life() as life:
        one = Administered(life, settings)
        for name in (ROOT_POLICY, ROOT_POLICY.lower(), "till", "TILL"):
            with pytest.raises(InvalidOperation):
                await one.namespace.put_policy(AuthorizationRule(name, KEY, SECOND, frozenset({"Manage"})))
            with pytest.raises(InvalidOperation):
                await one.namespace.remove_policy(name)
        with pytest.raises(InvalidOperation, match="from a setting"):
            await one.namespace.regenerate_key(ROOT_POLICY, KeyKind.PRIMARY)
        assert [rule.key_name for rule in one.namespace.policies()] == ["till", ROOT_POLICY]
        assert life.catalog.policies() == []


@covers("M15")
async def test_the_root_key_is_made_anew_where_it_is_no_setting() -> None:
    async with Machine().life() as life:
        one = Administered(life)

        async def renew() -> Sequence[AuthorizationRule]:
            return fixed_policies(ServeSettings(), "new-root-key")

        one.namespace.renew_root_key = renew
        with pytest.raises(InvalidOperation, match="one key only"):
            await one.namespace.regenerate_key(ROOT_POLICY, KeyKind.SECONDARY)
        renewed = await one.namespace.regenerate_key(ROOT_POLICY, KeyKind.PRIMARY)
        assert renewed.primary_key == "new-root-key"
        assert one.namespace.policies() == [renewed]


@covers("M15")
@pytest.mark.parametrize("path", ["", "orders"])
async def test_bad_policies_and_a_thirteenth_are_refused(path: str) -> None:
    async with Machine().life() as life:
        one = Administered(life)
        await life.namespace.create_queue(QueueDescription("orders"))
        for bad in (
            AuthorizationRule("", KEY, SECOND, frozenset({"Send"})),
            AuthorizationRule("a b", KEY, SECOND, frozenset({"Send"})),
            AuthorizationRule("a", KEY, SECOND, frozenset()),
            AuthorizationRule("a", KEY, SECOND, frozenset({"Everything"})),
            AuthorizationRule("a", "k;", "l", frozenset({"Send"})),
        ):
            with pytest.raises(InvalidArgument):
                await one.namespace.put_policy(bad, path)
        for number in range(12):
            await one.namespace.put_policy(AuthorizationRule(f"p{number}", "", "", frozenset({"Send"})), path)
            if number == 1:
                with pytest.raises(InvalidArgument, match="same KeyName"):
                    await one.namespace.put_policy(AuthorizationRule("P1", "", "", frozenset({"Send"})), path)
        with pytest.raises(InvalidArgument, match="up to 12"):
            await one.namespace.put_policy(AuthorizationRule("one-more", "", "", frozenset({"Send"})), path)
        await one.namespace.put_policy(AuthorizationRule("p1", "", "", frozenset({"Listen"})), path)


@covers("M15")
async def test_changes_of_policies_at_the_same_time_are_all_kept() -> None:
    async with Machine().life() as life:
        one = Administered(life)
        await life.namespace.create_queue(QueueDescription("orders"))
        await asyncio.gather(
            *(
                one.namespace.put_policy(AuthorizationRule(f"p{number}", "", "", frozenset({"Send"})), path)
                for number in range(8)
                for path in ("", "orders")
            )
        )
        assert len(one.namespace.policies("orders")) == 8
        assert len(one.namespace.policies()) == 9


@covers("M15", "F17")
def test_a_renewed_root_key_is_kept_for_the_next_start_and_only_for_its_owner(tmp_path: Path) -> None:
    old = ensure_key(tmp_path)
    new = renew_key(tmp_path)
    assert new != old
    assert ensure_key(tmp_path) == new
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
