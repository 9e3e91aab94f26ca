"""JSON web tokens as far as they can be judged without their issuer: their shape and their times.

Only for local use (`accept_any_jwt`): an identity provider's signature cannot be checked here, so such a
token proves nothing. Expired or malformed ones are refused all the same, since a client under test should see
that.
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
    text = token[len(_BEARER) :] if token[: len(_BEARER)].lower() == _BEARER else token
    parts = text.strip().split(".")
    if len(parts) != 3 or not all(parts):
        raise Unauthorized("The token is neither a shared access signature nor a signed JSON web token.")
    algorithm = _json_part(parts[0]).get("alg")
    if not isinstance(algorithm, str) or algorithm.lower() == "none":
        raise Unauthorized("The JSON web token is not signed.")
    claims = _json_part(parts[1])
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise Unauthorized("The JSON web token has no expiry (exp).")
    for name in ("nbf", "iat"):
        begins_at = _time(claims, name)
        if begins_at is not None and begins_at > now + CLOCK_SKEW_S:
            raise Unauthorized(f"The JSON web token is not valid yet ({name}).")
    subject = claims.get("sub")
    return (subject[:256] if isinstance(subject, str) else "jwt"), expires_at


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
