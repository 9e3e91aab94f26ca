"""Checks the JSON web tokens of the issuers that a namespace trusts (OpenID Connect).

A token counts if one of the issuer's published keys signed it, it is meant for this namespace (audience), it is within
its times, and one of its roles grants a right. `node/issuer_keys.py` reads the keys and sets them here, so no check
waits for a network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import jwt

from tandembus.config import IssuerSetting
from tandembus.errors import Unauthorized
from tandembus.security.claims import ALL_RIGHTS, Claims, Right
from tandembus.security.jwt import check_times, split_token

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key. A shared secret (HS256) would let whoever can check a token also make one."""
MAX_KEYS: Final = 100
MAX_ROLES: Final = 1_000


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """One public key of an issuer."""

    key_id: str
    algorithm: str
    key: jwt.PyJWK
    mark: bytes
    """Tells keys apart without being one: claims carry it, and lapse when the issuer withdraws the key."""


class Issuers:
    def __init__(self, trusted: Sequence[IssuerSetting], max_lifetime_s: float) -> None:
        self._trusted: Final = {one.issuer: one for one in trusted}
        self._max_lifetime_s = max_lifetime_s
        self._keys: dict[str, tuple[IssuerKey, ...]] = {}
        self.when_key_is_missing: Callable[[str], None] = lambda issuer: None
        """Called with the issuer of a token whose key is not known (yet)."""

    def set_keys(self, issuer: str, document: Mapping[str, object]) -> None:
        """Replaces the keys of an issuer by those of its JSON web key set. Raises ValueError if none can be used."""
        listed = document.get("keys")
        if not isinstance(listed, list):
            raise ValueError("it is not a JSON web key set: there is no list 'keys'")
        if len(listed) > MAX_KEYS:
            raise ValueError(f"it has {len(listed)} keys; at most {MAX_KEYS} are read")
        found = [key for one in listed if isinstance(one, dict) and (key := _usable(one)) is not None]
        if not found:
            raise ValueError(f"it has no key for signatures of the kinds {', '.join(ALGORITHMS)}")
        self._keys[issuer] = tuple(found)

    def knows(self, mark: bytes) -> bool:
        """Whether an issuer still publishes this key."""
        return any(key.mark == mark for keys in self._keys.values() for key in keys)

    def verify(self, token: str, now: float) -> Claims:
        """Returns what a token grants on the whole namespace. Raises Unauthorized."""
        text, header, payload = split_token(token)
        trusted = self._issuer_of(payload)
        key = self._signer(text, trusted.issuer, header)
        expires_at = check_times(payload, now, trusted.clock_skew_s) + trusted.clock_skew_s
        if now >= expires_at:
            raise Unauthorized("The JSON web token has expired.")
        self._check_audience(payload, trusted)
        subject = payload.get("sub")
        return Claims(
            subject[:256] if isinstance(subject, str) else trusted.issuer,
            _rights_of(payload, trusted),
            "",
            min(expires_at, now + self._max_lifetime_s),
            "",
            key.mark,
        )

    def _issuer_of(self, payload: Mapping[str, object]) -> IssuerSetting:
        issuer = payload.get("iss")
        trusted = self._trusted.get(issuer) if isinstance(issuer, str) else None
        if trusted is None:
            raise Unauthorized(f"The JSON web token's issuer (iss), {str(issuer)[:256]!r}, is not trusted here.")
        return trusted

    def _signer(self, text: str, issuer: str, header: Mapping[str, object]) -> IssuerKey:
        """The issuer's key that signed the token. A token that names no key may be signed with any of them."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise Unauthorized(
                f"The JSON web token's signature ({str(algorithm)[:32]}) is of a kind not accepted here."
            )
        known = self._keys.get(issuer, ())
        keys = [key for key in known if key_id in (None, key.key_id) and key.algorithm == algorithm]
        for key in keys:
            try:
                jwt.PyJWS().decode(text, key.key, algorithms=[key.algorithm])
            except jwt.PyJWTError:
                continue
            return key
        if keys:
            raise Unauthorized("The JSON web token's signature is wrong.")
        self.when_key_is_missing(issuer)
        why = "are read again" if known else "could not be read yet"
        raise Unauthorized(f"The JSON web token is signed with an unknown key; the keys of {issuer} {why}.")

    def _check_audience(self, payload: Mapping[str, object], trusted: IssuerSetting) -> None:
        audience = payload.get("aud")
        shown = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(one, str) and one.rstrip("/") in _bare(trusted.audience) for one in shown):
            raise Unauthorized("The JSON web token is for another audience (aud).")


def _bare(audiences: Sequence[str]) -> list[str]:
    return [one.rstrip("/") for one in audiences]


def _rights_of(payload: Mapping[str, object], trusted: IssuerSetting) -> frozenset[Right]:
    value: object = payload
    for name in trusted.role_claim.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    listed = value.split() if isinstance(value, str) else value
    roles = set(map(str, listed[:MAX_ROLES])) if isinstance(listed, list) else set()
    if not roles.isdisjoint(trusted.manage_roles):
        return ALL_RIGHTS
    granted = ((Right.SEND, trusted.send_roles), (Right.LISTEN, trusted.listen_roles))
    rights = frozenset(right for right, those in granted if not roles.isdisjoint(those))
    if not rights:
        raise Unauthorized(f"The JSON web token's roles ({trusted.role_claim}) grant no right here.")
    return rights


def _usable(document: Mapping[str, object]) -> IssuerKey | None:
    """The key, unless it is for something else than signatures or of an unknown kind."""
    if document.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(dict(document))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if key.algorithm_name not in ALGORITHMS:
        return None
    key_id = document.get("kid")
    mark = hashlib.sha256(b"tandembus issuer key\n" + repr(sorted(document.items(), key=str)).encode()).digest()[:16]
    return IssuerKey(key_id if isinstance(key_id, str) else "", key.algorithm_name, key, mark)
