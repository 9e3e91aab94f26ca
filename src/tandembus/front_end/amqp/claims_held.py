"""What one connection has shown it may do: claims of its SASL identity, and of the tokens it has put."""

from __future__ import annotations

from collections.abc import Callable

from tandembus.clock import Clock
from tandembus.errors import Unauthorized
from tandembus.security.claims import Authorizer, Claims, Right

MAX_AUDIENCES = 1000
"""Tokens kept per connection; a client has one per entity it uses."""


class ClaimsHeld:
    """Deny by default: without a valid claim nothing is allowed, whether or not `$cbs` was used."""

    def __init__(self, authorizer: Authorizer, clock: Clock, when_claimed: Callable[[], None]) -> None:
        self._authorizer = authorizer
        self._clock = clock
        self._when_claimed = when_claimed
        self._claims: dict[str, Claims] = {}

    def put(self, audience: str, claims: Claims) -> None:
        """A token put again for its audience replaces the older one."""
        if audience not in self._claims and len(self._claims) >= MAX_AUDIENCES:
            raise Unauthorized(f"A connection may hold tokens for at most {MAX_AUDIENCES} audiences.")
        self._claims[audience] = claims
        self._when_claimed()

    def has_any(self) -> bool:
        return bool(self._claims)

    def allow(self, right: Right, path: str) -> bool:
        """Claims reach no further than the audience they were shown for: only those of the path itself, and of what
        lies above it, can cover it."""
        now = self._clock.now()
        place = path
        while True:
            claims = self._claims.get(place)
            if claims is not None and claims.allows(right, path, now) and self._authorizer.is_current(claims, now):
                return True
            if not place:
                return False
            place = place.rpartition("/")[0]

    def check(self, right: Right, path: str) -> None:
        if not self.allow(right, path):
            raise Unauthorized(
                f"Unauthorized access. '{right.value}' claim(s) are required to perform this operation on '{path}'."
            )
