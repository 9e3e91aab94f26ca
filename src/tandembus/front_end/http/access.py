"""Who may ask: the token of a request, and what it proves."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.errors import Unauthorized
from tandembus.front_end.http.request import connection_of
from tandembus.security.claims import Authorizer, Claims, Right

_BEARER: Final = "bearer "


class Access:
    """Denies unless there is one token, and it proves the right for the path now."""

    def __init__(self, authorizer: Authorizer, clock: Clock) -> None:
        self._authorizer = authorizer
        self._clock = clock

    def check(self, request: web.Request, right: Right, path: str) -> Claims:
        claims = self._claims(request.headers.getall("Authorization", []), "Authorization")
        if not claims.allows(right, path, self._clock.now()):
            raise Unauthorized(f"The token does not grant {right.value} on this resource.")
        connection_of(request).claim_shown()
        return claims

    def is_current(self, claims: Claims) -> bool:
        return self._authorizer.is_current(claims, self._clock.now())

    def _claims(self, headers: list[str], name: str) -> Claims:
        if len(headers) != 1:
            raise Unauthorized(f"The request needs one {name} header with a shared access signature.")
        token = headers[0].strip()
        if token.lower().startswith(_BEARER):
            token = token[len(_BEARER) :].strip()
        return self._authorizer.verify_token(token, None, self._clock.now())
