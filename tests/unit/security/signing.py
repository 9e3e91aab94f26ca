"""Tokens as friends and attackers make them, and one namespace to try them on."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote_plus

from tandembus.errors import Unauthorized
from tandembus.security.claims import ALL_RIGHTS, Authorizer, Policy, Right
from tandembus.security.sas import ROOT_POLICY

NOW: Final = 1_700_000_000.0
LATER: Final = 1_700_003_600
HOST: Final = "sb://localhost"

ROOT_KEY: Final = "cm9vdC1rZXktcm9vdC1rZXktcm9vdC1rZXktcm9vdCE="
SENDER_KEY: Final = "c2VuZGVyLWtleS1zZW5kZXIta2V5LXNlbmRlci1rZXk="
LISTENER_KEY: Final = "bGlzdGVuZXIta2V5LWxpc3RlbmVyLWtleS1saXN0ZW4="
SECOND_KEY: Final = "c2Vjb25kLWtleS1zZWNvbmQta2V5LXNlY29uZC1rZXk="
CLERK_KEY: Final = "Y2xlcmsta2V5LWNsZXJrLWtleS1jbGVyay1rZXktY2w="
ORDERS_KEY: Final = "b3JkZXJzLWtleS1vcmRlcnMta2V5LW9yZGVycy1rZXk="

ROOT: Final = Policy(ROOT_POLICY, ROOT_KEY, "", ALL_RIGHTS)
SENDER: Final = Policy("sender", SENDER_KEY, "", frozenset({Right.SEND}))
LISTENER: Final = Policy("listener", LISTENER_KEY, SECOND_KEY, frozenset({Right.LISTEN}))
CLERK: Final = Policy("clerk", CLERK_KEY, "", frozenset({Right.SEND, Right.LISTEN}))
ORDERS_ONLY: Final = Policy("orders-only", ORDERS_KEY, "", frozenset({Right.MANAGE}))

KEYS: Final = {
    ROOT_POLICY: ROOT_KEY,
    "sender": SENDER_KEY,
    "listener": LISTENER_KEY,
    "clerk": CLERK_KEY,
    "orders-only": ORDERS_KEY,
}


def make_authorizer(*, accept_any_jwt: bool = False, of_orders: Sequence[Policy] = (ORDERS_ONLY,)) -> Authorizer:
    """A namespace with policies of its own and one entity, orders, that has one, too."""
    return Authorizer(
        [ROOT, SENDER, LISTENER, CLERK],
        entity_policies=lambda key: of_orders if key == "orders" else (),
        accept_any_jwt=accept_any_jwt,
    )


def signature(text: str, key: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def token(
    path: str = "orders",
    policy: str = ROOT_POLICY,
    key: str | None = None,
    se: str = str(LATER),
    *,
    uri: str | None = None,
    sig: str | None = None,
) -> str:
    """A token whose every part can be made wrong; unless it is, the signature fits the rest."""
    resource = quote_plus(f"{HOST}/{path}" if uri is None else uri)
    signed = sig if sig is not None else signature(f"{resource}\n{se}", KEYS.get(policy, "?") if key is None else key)
    return f"SharedAccessSignature sr={resource}&sig={quote_plus(signed)}&se={se}&skn={policy}"


def gets_in(text: str, right: Right, path: str, audience: str | None = None) -> bool:
    """Whether somebody with this token, shown for `audience`, may do `right` on `path`."""
    try:
        claims = make_authorizer().verify_token(text, path if audience is None else audience, NOW)
    except Unauthorized:
        return False
    return claims.allows(right, path, NOW)
