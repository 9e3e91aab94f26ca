"""Web tokens in the mode for local use: shape and times are looked at, the signature cannot be."""

from __future__ import annotations

import base64
import json

import pytest

from tandembus.errors import Unauthorized
from tandembus.security.claims import Right
from tests.covers import covers
from tests.unit.security.signing import LATER, NOW, make_authorizer


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def web_token(header: object, claims: object, signature: str = "c2ln") -> str:
    return f"{part(header)}.{part(claims)}.{signature}"


GOOD = web_token({"alg": "RS256"}, {"exp": LATER, "nbf": NOW - 5, "sub": "somebody"})


@covers("M15")
@pytest.mark.parametrize("text", [GOOD, f"Bearer {GOOD}", f"bearer {GOOD}"])
def test_a_web_token_is_accepted_where_that_was_asked_for(text: str) -> None:
    authorizer = make_authorizer(accept_any_jwt=True)
    claims = authorizer.verify_token(text, "orders", NOW)
    assert claims.policy == "somebody"
    assert claims.allows(Right.MANAGE, "orders/$management", NOW)
    assert not claims.allows(Right.MANAGE, "invoices", NOW)
    assert authorizer.is_current(claims, NOW)
    assert not authorizer.is_current(claims, LATER)
    assert not make_authorizer().is_current(claims, NOW)


@covers("M15", "F16")
def test_no_web_token_is_accepted_otherwise() -> None:
    with pytest.raises(Unauthorized):
        make_authorizer().verify_token(GOOD, "orders", NOW)


@covers("F16")
@pytest.mark.parametrize(
    "text",
    [
        web_token({"alg": "none"}, {"exp": LATER}),
        web_token({"alg": "NONE"}, {"exp": LATER}),
        web_token({"alg": 5}, {"exp": LATER}),
        web_token({}, {"exp": LATER}),
        web_token([], {"exp": LATER}),
        web_token({"alg": "RS256"}, {"exp": LATER}, ""),
        web_token({"alg": "RS256"}, {"exp": NOW}),
        web_token({"alg": "RS256"}, {"exp": 0}),
        web_token({"alg": "RS256"}, {"exp": 1e300}),
        web_token({"alg": "RS256"}, {"exp": 10**400}),
        web_token({"alg": "RS256"}, {"exp": float("inf")}),
        web_token({"alg": "RS256"}, {"exp": float("nan")}),
        web_token({"alg": "RS256"}, {"exp": str(LATER)}),
        web_token({"alg": "RS256"}, {"exp": True}),
        web_token({"alg": "RS256"}, {}),
        web_token({"alg": "RS256"}, "text"),
        web_token({"alg": "RS256"}, {"exp": LATER, "nbf": NOW + 301}),
        web_token({"alg": "RS256"}, {"exp": LATER, "iat": NOW + 301}),
        GOOD.replace(".", "", 1),
        GOOD + ".x",
        "%%%.%%%.%%%",
        "YQ.YQ.YQ",
        "é.é.é",
        f"{base64.urlsafe_b64encode(b'[' * 5_000).decode()}.x.y",
    ],
)
def test_a_web_token_that_is_unsigned_expired_or_malformed_is_refused(text: str) -> None:
    with pytest.raises(Unauthorized):
        make_authorizer(accept_any_jwt=True).verify_token(text, "orders", NOW)
