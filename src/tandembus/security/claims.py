"""Who may do what: policies, the claims that a token or a password proves, and the verifier.

Deny by default: whatever is not clearly allowed raises Unauthorized. Which path an operation needs a claim
for is the front ends' business.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final, Protocol

from tandembus.errors import Unauthorized
from tandembus.security.jwt import read_jwt
from tandembus.security.sas import SasToken, is_sas_token, parse_token
from tandembus.security.scopes import covers, fold, is_part, scope_of_uri, strip_host

DEFAULT_MAX_TOKEN_SIZE_BYTES: Final = 16 * 1024
DEFAULT_MAX_TOKEN_LIFETIME_S: Final = 3_650 * 86_400.0
_NOBODYS_KEY: Final = "-"
_BAD_SIGNATURE: Final = "The token was not signed with a key of policy '{}'."


class Right(Enum):
    """What a policy grants; the value is the word that clients use."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_RIGHTS: Final = frozenset(Right)


@dataclass(frozen=True, slots=True)
class Policy:
    """A named pair of keys and what they are good for. Manage implies the other two."""

    name: str
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    """Empty: there is none."""
    rights: frozenset[Right]

    def __post_init__(self) -> None:
        assert self.name, "a policy needs a name"
        assert self.primary_key, "a policy without a key would let everybody in"

    @property
    def granted(self) -> frozenset[Right]:
        return ALL_RIGHTS if Right.MANAGE in self.rights else self.rights

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.primary_key, self.secondary_key) if self.secondary_key else (self.primary_key,)


@dataclass(frozen=True, slots=True)
class Claims:
    """What somebody has proved, until when."""

    policy: str
    rights: frozenset[Right]
    scope: str
    """"" for the whole namespace, else a lower-cased path; covers what lies below it, too."""
    expires_at: float
    """Wall time; infinity for a SASL password, which lives as long as its connection."""
    policy_scope: str = ""
    """The entity that the policy belongs to, "" for the namespace's own. Other entities whose names begin with its path
    are not covered."""
    key_mark: bytes = field(default=b"", repr=False)
    """Says which key it was, so that a key can be taken back, without being one."""

    def allows(self, right: Right, path: str, now: float, behind: str = "") -> bool:
        """Whether this is enough for `right` on `path` (with its suffixes) at this time. A token may also be signed for
        what an HTTP address has `behind` the path."""
        is_granted = right in self.rights or Right.MANAGE in self.rights
        return is_granted and now < self.expires_at and self.covers(path, behind)

    def covers(self, path: str, behind: str = "") -> bool:
        return covers(self.scope, path + behind) and (not self.policy_scope or is_part(self.policy_scope, path))


PoliciesOf = Callable[[str], Sequence[Policy]]
"""The policies of the entity with this key (its path in lower case, "" for the namespace), as they are now; none where
there is no such entity."""


class WebTokens(Protocol):
    """Who checks JSON web tokens."""

    def verify(self, token: str, now: float) -> Claims:
        """What the token grants. Raises Unauthorized."""

    def knows(self, mark: bytes) -> bool:
        """Whether the key with this mark still counts."""


def _no_policies(key: str) -> Sequence[Policy]:
    return ()


class Authorizer:
    """Knows the policies of a namespace and of its entities, and verifies what clients show."""

    def __init__(
        self,
        policies: Iterable[Policy],
        *,
        entity_policies: PoliciesOf = _no_policies,
        accept_any_jwt: bool = False,
        web_tokens: WebTokens | None = None,
        max_token_size_bytes: int = DEFAULT_MAX_TOKEN_SIZE_BYTES,
        max_token_lifetime_s: float = DEFAULT_MAX_TOKEN_LIFETIME_S,
    ) -> None:
        self._policies: dict[str, dict[str, Policy]] = {}
        """By scope ("" is the namespace), then by name."""
        self._entity_policies = entity_policies
        self._accept_any_jwt = accept_any_jwt
        self._web_tokens = web_tokens
        self._max_token_size_bytes = max_token_size_bytes
        self._max_token_lifetime_s = max_token_lifetime_s
        self.set_policies("", policies)

    def set_policies(self, path: str, policies: Iterable[Policy]) -> None:
        """Replace the policies of the namespace ("") or of one entity, beside what `entity_policies` knows of it.
        Live claims of a key that is gone stop being current."""
        self._policies[fold(path.strip("/"))] = {policy.name: policy for policy in policies}

    def policies(self, path: str = "") -> Mapping[str, Policy]:
        """The policies that were set."""
        return self._policies.get(fold(path.strip("/")), {})

    def verify_token(self, token: str, audience_path: str | None, now: float) -> Claims:
        """What a token proves for `audience_path` (a path or a whole URI): never more than was asked for.

        None asks for all that the token covers. Raises Unauthorized.
        """
        if len(token) > self._max_token_size_bytes:
            raise Unauthorized(f"The token is larger than {self._max_token_size_bytes} bytes.")
        claims = self._verify_sas(token, now) if is_sas_token(token) else self._verify_jwt(token, now)
        if audience_path is None:
            return claims
        audience = fold(strip_host(audience_path))
        if not claims.covers(audience):
            raise Unauthorized("The token is for another resource than the one it is shown for.")
        return _narrowed(claims, audience)

    def verify_plain(self, policy: str, key: str) -> Claims:
        """A SASL password: a policy of the namespace and one of its keys. Raises Unauthorized."""
        known = self._policy("", policy)
        keys = known.keys if known is not None else (_NOBODYS_KEY,)
        # All keys are compared, also for a policy that is not there, so that the time tells nothing.
        matches = [one for one in keys if hmac.compare_digest(one.encode(), key.encode("utf-8", "replace"))]
        if known is None or not matches:
            raise Unauthorized("The policy name or its key is wrong.")
        return Claims(known.name, known.granted, "", math.inf, "", _mark(matches[0]))

    def is_current(self, claims: Claims, now: float) -> bool:
        """Whether live claims still hold: not expired, and their policy still has that key and these
        rights."""
        if now >= claims.expires_at:
            return False
        if not claims.key_mark:
            return self._accept_any_jwt
        if self._web_tokens is not None and self._web_tokens.knows(claims.key_mark):
            return True
        policy = self._policy(claims.policy_scope, claims.policy)
        if policy is None or not claims.rights <= policy.granted:
            return False
        return claims.key_mark in [_mark(key) for key in policy.keys]

    def _verify_sas(self, text: str, now: float) -> Claims:
        token = parse_token(text)
        scope = scope_of_uri(token.uri)
        if scope is None:
            raise Unauthorized("The token's resource (sr) is not a URI of this namespace.")
        policy_scope, policy, key = self._signer(token, scope)
        expires_at = float(token.expires_at)
        self._check_expiry(expires_at, now)
        return Claims(policy.name, policy.granted, scope, expires_at, policy_scope, _mark(key))

    def _signer(self, token: SasToken, scope: str) -> tuple[str, Policy, str]:
        """The policy and key that signed it: the entity's own where it has one of that name, else the
        namespace's."""
        for policy_scope, policy in self._candidates(token.policy, scope):
            for key in policy.keys:
                if token.is_signed_with(key):
                    return policy_scope, policy, key
        token.is_signed_with(_NOBODYS_KEY)
        raise Unauthorized(_BAD_SIGNATURE.format(token.policy[:64]))

    def _candidates(self, name: str, scope: str) -> list[tuple[str, Policy]]:
        """Policies of this name, of the scope itself and of everything above it. An entity's policy is worth
        nothing for a resource outside of the entity, since only what lies at or below it is looked up
        there."""
        found: list[tuple[str, Policy]] = []
        place = scope
        while True:
            policy = self._policy(place, name)
            if policy is not None:
                found.append((place, policy))
            if not place:
                return found
            place = place.rpartition("/")[0]

    def _policy(self, scope: str, name: str) -> Policy | None:
        """What was set goes before what is looked up: the root policy cannot be taken over."""
        known = self._policies.get(scope, {}).get(name)
        if known is not None:
            return known
        return next((policy for policy in self._entity_policies(scope) if policy.name == name), None)

    def _verify_jwt(self, token: str, now: float) -> Claims:
        if self._web_tokens is not None:
            return self._web_tokens.verify(token, now)
        if not self._accept_any_jwt:
            raise Unauthorized("The token is not a shared access signature; others are not accepted here.")
        subject, expires_at = read_jwt(token, now)
        self._check_expiry(expires_at, now)
        return Claims(subject, ALL_RIGHTS, "", expires_at)

    def _check_expiry(self, expires_at: float, now: float) -> None:
        if now >= expires_at:
            raise Unauthorized("The token has expired.")
        if expires_at - now > self._max_token_lifetime_s:
            raise Unauthorized("The token expires too far in the future; its expiry is in seconds since 1970.")


def _narrowed(claims: Claims, audience: str) -> Claims:
    return Claims(claims.policy, claims.rights, audience, claims.expires_at, claims.policy_scope, claims.key_mark)


@lru_cache(maxsize=256)
def _mark(key: str) -> bytes:
    return hashlib.sha256(b"tandembus key mark\n" + key.encode()).digest()[:16]
