"""Every trick of `attempts.py`, and what happens to claims whose key is taken back."""

from __future__ import annotations

import pytest

from tandembus.errors import Unauthorized
from tandembus.security.claims import Authorizer, Claims, Policy, Right
from tandembus.security.sas import ROOT_POLICY, make_token
from tests.covers import covers
from tests.unit.security.attempts import ATTEMPTS, GOOD_SIGNATURE, LISTEN, MANAGE, SEND, Attempt
from tests.unit.security.signing import (
    KEYS,
    LATER,
    LISTENER_KEY,
    NOW,
    ORDERS_KEY,
    ORDERS_ONLY,
    ROOT_KEY,
    SECOND_KEY,
    SENDER_KEY,
    gets_in,
    make_authorizer,
    token,
)


@covers("M15", "F16")
@pytest.mark.parametrize("one", ATTEMPTS)
def test_nobody_gets_in_with(one: Attempt) -> None:
    assert not gets_in(*one)


@covers("F16")
def test_there_are_enough_attempts() -> None:
    assert len({repr(one.values) for one in ATTEMPTS}) >= 400


@covers("M15")
@pytest.mark.parametrize(
    ("text", "right", "path"),
    [
        (token(), MANAGE, "orders"),
        (token(), SEND, "ORDERS/$Management"),
        (token(), LISTEN, "Orders/$DeadLetterQueue"),
        (token(""), MANAGE, "invoices"),
        (token(""), MANAGE, ""),
        (token("", "sender"), SEND, "orders"),
        (token("", "listener"), LISTEN, "orders/$management"),
        (token("", "listener", SECOND_KEY), LISTEN, "orders"),
        (token("orders", "orders-only"), MANAGE, "orders/$management"),
        (token("orders/", "orders-only"), LISTEN, "orders"),
        (token("orders", "orders-only"), LISTEN, "orders/$Transfer/$DeadLetterQueue/$management"),
        (token("orders", "orders-only"), LISTEN, "Orders/Subscriptions/a/$DeadLetterQueue"),
        (token("orders/subscriptions/a", "orders-only"), MANAGE, "orders/subscriptions/a/rules/r"),
        (token("a"), SEND, "a/b"),
        (token(uri="https://localhost:5300/orders?api-version=2021-05"), MANAGE, "orders"),
        (token(uri="contoso.servicebus.windows.net/orders"), SEND, "orders"),
        (token(uri="sb://[::1]:5672/orders"), SEND, "orders"),
        (token(uri="https://localhost/t%2F1"), SEND, "t/1"),
        (token(uri="localhost:5672"), SEND, "orders"),
    ],
)
def test_the_attempts_fail_for_their_trick_and_not_for_their_make(text: str, right: Right, path: str) -> None:
    assert gets_in(text, right, path)


@covers("M15", "F16")
@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ("", ""),
        (ROOT_POLICY, ""),
        (ROOT_POLICY, SENDER_KEY),
        (ROOT_POLICY, ROOT_KEY[:-1]),
        (ROOT_POLICY, ROOT_KEY + "\x00"),
        (ROOT_POLICY.lower(), ROOT_KEY),
        ("nobody", ROOT_KEY),
        ("nobody", "-"),
        ("orders-only", ORDERS_KEY),
        ("sender", "\ud800"),
    ],
)
def test_a_wrong_password_is_refused(policy: str, key: str) -> None:
    with pytest.raises(Unauthorized):
        make_authorizer().verify_plain(policy, key)


@covers("M15")
@pytest.mark.parametrize("key", [LISTENER_KEY, SECOND_KEY])
def test_a_right_password_gives_the_rights_of_its_policy(key: str) -> None:
    claims = make_authorizer().verify_plain("listener", key)
    assert claims.allows(LISTEN, "anything", NOW + 1e9)
    assert not claims.allows(SEND, "anything", NOW)


class TestClaimsThatAreTakenBack:
    """A live link keeps its claims only as long as they would be given again."""

    @staticmethod
    def claims_of(authorizer: Authorizer, policy: str = "sender", path: str = "orders") -> Claims:
        return authorizer.verify_token(token(path, policy), path, NOW)

    @covers("M15", "F16")
    def test_they_hold_until_they_expire(self) -> None:
        authorizer = make_authorizer()
        claims = self.claims_of(authorizer)
        assert authorizer.is_current(claims, LATER - 0.001)
        assert not authorizer.is_current(claims, LATER)
        assert not claims.allows(SEND, "orders", LATER)

    @covers("M15", "F16")
    def test_they_end_when_the_key_is_made_anew(self) -> None:
        authorizer = make_authorizer()
        claims = self.claims_of(authorizer)
        authorizer.set_policies("", [Policy("sender", "another", "", frozenset({SEND}))])
        assert not authorizer.is_current(claims, NOW)

    @covers("M15")
    def test_they_survive_when_the_other_key_is_made_anew(self) -> None:
        authorizer = make_authorizer()
        claims = self.claims_of(authorizer)
        authorizer.set_policies("", [Policy("sender", "another", SENDER_KEY, frozenset({SEND}))])
        assert authorizer.is_current(claims, NOW)

    @covers("M15", "F16")
    def test_they_end_when_the_policy_loses_the_right(self) -> None:
        authorizer = make_authorizer()
        claims = self.claims_of(authorizer)
        authorizer.set_policies("", [Policy("sender", SENDER_KEY, "", frozenset({LISTEN}))])
        assert not authorizer.is_current(claims, NOW)

    @covers("M15", "F16")
    def test_they_end_when_the_entitys_policy_is_deleted(self) -> None:
        of_orders = [ORDERS_ONLY]
        authorizer = make_authorizer(of_orders=of_orders)
        claims = self.claims_of(authorizer, "orders-only")
        assert authorizer.is_current(claims, NOW)
        of_orders.clear()
        assert not authorizer.is_current(claims, NOW)
        with pytest.raises(Unauthorized):
            self.claims_of(authorizer, "orders-only")

    @covers("M15")
    def test_a_password_ends_with_its_policy(self) -> None:
        authorizer = make_authorizer()
        claims = authorizer.verify_plain("sender", SENDER_KEY)
        assert authorizer.is_current(claims, NOW + 1e9)
        authorizer.set_policies("", [])
        assert not authorizer.is_current(claims, NOW)


@covers("M15", "F16")
def test_a_token_of_another_namespace_is_worth_nothing_here() -> None:
    other = Authorizer([Policy(ROOT_POLICY, "another-key", "", frozenset({MANAGE}))])
    text = make_token("sb://other/", ROOT_POLICY, "another-key", LATER)
    assert other.verify_token(text, "", NOW).allows(MANAGE, "orders", NOW)
    with pytest.raises(Unauthorized):
        make_authorizer().verify_token(text, "", NOW)


@covers("F17")
@pytest.mark.parametrize("one", [one for one in ATTEMPTS if one.id.startswith(("signature", "wrong", "text"))])
def test_a_refusal_repeats_neither_key_nor_signature(one: Attempt) -> None:
    text, _, path, _ = one
    with pytest.raises(Unauthorized) as refusal:
        make_authorizer().verify_token(text, path, NOW)
    assert not any(secret in str(refusal.value) for secret in (*KEYS.values(), GOOD_SIGNATURE))
