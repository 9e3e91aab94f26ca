"""What one connection may do: nothing, until it has shown a valid claim."""

from __future__ import annotations

import pytest

from tandembus.clock import ManualClock
from tandembus.errors import Unauthorized
from tandembus.front_end.amqp.claims_held import MAX_AUDIENCES, ClaimsHeld
from tandembus.security.claims import Authorizer, Policy, Right
from tandembus.security.sas import make_token

KEY, OTHER_KEY = "c2VjcmV0", "b3RoZXI="
POLICY = Policy("sends", KEY, "", frozenset({Right.SEND}))
ROOT = Policy("root", KEY, OTHER_KEY, frozenset({Right.MANAGE}))


class Holder:
    def __init__(self, *policies: Policy) -> None:
        self.clock = ManualClock()
        self.authorizer = Authorizer(policies)
        self.claimed_count = 0
        self.held = ClaimsHeld(self.authorizer, self.clock, self._claimed)

    def _claimed(self) -> None:
        self.claimed_count += 1

    def put(self, path: str, policy: Policy = ROOT, lifetime_s: float = 60.0) -> None:
        uri = f"sb://bus/{path}"
        token = make_token(uri, policy.name, policy.primary_key, int(self.clock.now() + lifetime_s))
        self.held.put(path, self.authorizer.verify_token(token, uri, self.clock.now()))


def test_without_a_claim_nothing_is_allowed() -> None:
    holder = Holder(ROOT)
    assert not holder.held.has_any()
    for right in Right:
        with pytest.raises(Unauthorized, match=f"'{right.value}' claim"):
            holder.held.check(right, "orders")


def test_a_claim_is_good_for_its_path_and_what_lies_below() -> None:
    holder = Holder(ROOT)
    holder.put("orders")
    assert holder.held.allow(Right.LISTEN, "orders")
    assert holder.held.allow(Right.LISTEN, "orders/$deadletterqueue")
    assert not holder.held.allow(Right.LISTEN, "orders2")
    assert not holder.held.allow(Right.LISTEN, "invoices")


def test_a_claim_is_good_for_its_rights_only() -> None:
    holder = Holder(POLICY)
    holder.put("orders", POLICY)
    holder.held.check(Right.SEND, "orders")
    with pytest.raises(Unauthorized):
        holder.held.check(Right.LISTEN, "orders")


def test_a_claim_ends_with_its_token() -> None:
    holder = Holder(ROOT)
    holder.put("orders", lifetime_s=60.0)
    holder.clock.advance(59.0)
    assert holder.held.allow(Right.SEND, "orders")
    holder.clock.advance(1.0)
    assert not holder.held.allow(Right.SEND, "orders")


def test_a_token_put_again_replaces_the_older_one() -> None:
    holder = Holder(ROOT)
    holder.put("orders", lifetime_s=60.0)
    holder.put("orders", lifetime_s=600.0)
    holder.clock.advance(100.0)
    assert holder.held.allow(Right.SEND, "orders")


def test_a_key_that_is_taken_back_ends_its_claims() -> None:
    holder = Holder(ROOT)
    holder.put("orders")
    holder.authorizer.set_policies("", [Policy("root", OTHER_KEY, "", ROOT.rights)])
    assert not holder.held.allow(Right.SEND, "orders")


def test_tokens_for_several_paths_are_held_side_by_side() -> None:
    holder = Holder(ROOT)
    holder.put("orders")
    holder.put("invoices")
    assert holder.held.allow(Right.SEND, "orders")
    assert holder.held.allow(Right.SEND, "invoices")


def test_a_sasl_password_is_good_for_everything_its_policy_grants() -> None:
    holder = Holder(ROOT)
    holder.held.put("", holder.authorizer.verify_plain("root", OTHER_KEY))
    assert holder.held.allow(Right.MANAGE, "anything/at/all")


def test_the_number_of_tokens_is_bounded() -> None:
    holder = Holder(ROOT)
    claims = holder.authorizer.verify_plain("root", KEY)
    for index in range(MAX_AUDIENCES):
        holder.held.put(f"queue-{index}", claims)
    with pytest.raises(Unauthorized, match="at most"):
        holder.held.put("one-more", claims)
    holder.held.put("queue-0", claims)


def test_whoever_waits_for_a_claim_is_told_of_each() -> None:
    holder = Holder(ROOT)
    holder.put("orders")
    holder.put("invoices")
    assert holder.claimed_count == 2
    assert holder.held.has_any()
