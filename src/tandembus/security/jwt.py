"""JSON web tokens without their signature: their parts and their times.

`read_jwt` is for local use only (`accept_any_jwt`): nobody checks who signed such a token. Expired or malformed ones
are refused all the same, since a client under test should see that. `issuers.py` checks signatures.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Final

from tandembus.errors import Unauthorized

CLOCK_SKEW_S: Final = 300.0
_BEARER: Final = "bearer "


def read_jwt(token: str, now: float) -> tuple[str, float]:
    """Whose token it says it is, and until when. Raises Unauthorized."""
    _, header, claims = split_token(token)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm.lower() == "none":
        raise Unauthorized("The JSON web token is not signed.")
    subject = claims.get("sub")
    return (subject[:256] if isinstance(subject, str) else "jwt"), check_times(claims, now, CLOCK_SKEW_S)


def split_token(token: str) -> tuple[str, dict[str, object], dict[str, object]]:
    """The token without `Bearer`, its header, and its claims. Raises Unauthorized."""
    text = (token[len(_BEARER) :] if token[: len(_BEARER)].lower() == _BEARER else token).strip()
    parts = text.split(".")
    if len(parts) != 3 or not all(parts):
        raise Unauthorized("The token is neither a shared access signature nor a signed JSON web token.")
    return text, _json_part(parts[0]), _json_part(parts[1])


def check_times(claims: dict[str, object], now: float, clock_skew_s: float) -> float:
    """When the token expires. Raises Unauthorized if it says nothing of that, or is not valid yet."""
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise Unauthorized("The JSON web token has no expiry (exp).")
    for name in ("nbf", "iat"):
        begins_at = _time(claims, name)
        if begins_at is not None and begins_at > now + clock_skew_s:
            raise Unauthorized(f"The JSON web token is not valid yet ({name}).")
    return expires_at


def _json_part(part: str) -> dict[str, object]:
    try:
        raw = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        value = json.loads(raw)
    except (binascii.Error, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Unauthorized("The JSON web token cannot be read.")
    return value


def _time(claims: dict[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Unauthorized(f"The JSON web token's {name} is not a time.")
    try:
        time = float(value)
    except OverflowError:
        time = math.inf
    if not math.isfinite(time):
        raise Unauthorized(f"The JSON web token's {name} is not a time.")
    return time
