"""Who may ask: the token of a request, in its header or in the dashboard's cookie, and what it proves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from tandembus.clock import Clock
from tandembus.descriptions import EntityDescription, TopicDescription
from tandembus.errors import Unauthorized
from tandembus.front_end.http.cookies import TokenCookie
from tandembus.front_end.http.request import HttpRefusal, connection_of
from tandembus.security.claims import Authorizer, Claims, Right
from tandembus.security.scopes import fold

SUPPLEMENTARY: Final = "ServiceBusSupplementaryAuthorization"
SUPPLEMENTARY_FOR_DEAD_LETTERS: Final = "ServiceBusDlqSupplementaryAuthorization"
_BEARER: Final = "bearer "


class Access:
    """Denies unless there is one token, and it proves the right for the path now."""

    def __init__(self, authorizer: Authorizer, clock: Clock, cookie: TokenCookie) -> None:
        self._authorizer = authorizer
        self._clock = clock
        self._cookie = cookie

    def check(self, request: web.Request, right: Right, path: str, behind: str = "") -> Claims:
        return self.check_one_of(request, (right,), path, behind)

    def check_one_of(self, request: web.Request, rights: Sequence[Right], path: str, behind: str = "") -> Claims:
        """For what any of several rights is enough for."""
        claims = self._shown(request)
        if not any(claims.allows(right, path, self._clock.now(), behind) for right in rights):
            words = " or ".join(right.value for right in rights)
            raise _denied(request, f"The token does not grant {words} on this entity.")
        connection_of(request).claim_shown()
        return claims

    def check_any(self, request: web.Request) -> Claims:
        """For what everybody may ask who has a valid claim on something."""
        claims = self._shown(request)
        connection_of(request).claim_shown()
        return claims

    def allows(self, claims: Claims, right: Right, path: str) -> bool:
        """For what is only shown or left out."""
        return claims.allows(right, path, self._clock.now())

    def allows_any(self, claims: Claims, path: str) -> bool:
        return any(self.allows(claims, right, path) for right in Right)

    def is_current(self, claims: Claims) -> bool:
        return self._authorizer.is_current(claims, self._clock.now())

    def check_target(self, request: web.Request, header: str, claims: Claims, target: str) -> Claims:
        """Whether messages may be sent on to another entity: a token for it in a header of its own proves that, or
        without one the request's own."""
        tokens = request.headers.getall(header, [])
        refusal = f"No token of the request grants Send on '{target[:300]}' ({header})"
        try:
            proof = self._claims(tokens, header) if tokens else claims
        except Unauthorized as error:
            # Such as the key of an entity, which is worth nothing at another: what is missing is the claim there.
            raise Unauthorized(f"{refusal}: {error}") from error
        if not proof.allows(Right.SEND, target, self._clock.now()):
            raise _denied(request, f"{refusal}.")
        return proof

    def check_forwarding(
        self, request: web.Request, claims: Claims, wanted: EntityDescription, known: EntityDescription | None
    ) -> None:
        """Who makes an entity forward its messages must be allowed to send to where they go."""
        if isinstance(wanted, TopicDescription):
            return
        before: tuple[str | None, str | None] = (None, None)
        if known is not None and not isinstance(known, TopicDescription):
            before = (known.forward_to, known.forward_dead_lettered_messages_to)
        after = (wanted.forward_to, wanted.forward_dead_lettered_messages_to)
        for header, old, new in zip((SUPPLEMENTARY, SUPPLEMENTARY_FOR_DEAD_LETTERS), before, after, strict=True):
            is_as_before = old is not None and new is not None and fold(old) == fold(new)
            if new is not None and (header in request.headers or not is_as_before):
                self.check_target(request, header, claims, new)

    def _shown(self, request: web.Request) -> Claims:
        headers = request.headers.getall("Authorization", [])
        token = self._cookie.token_of(request) if not headers else None
        if token is None:
            return self._claims(headers, "Authorization")
        return self._authorizer.verify_token(token, None, self._clock.now())

    def _claims(self, headers: list[str], name: str) -> Claims:
        if len(headers) != 1:
            raise Unauthorized(f"The request needs one {name} header with a shared access signature.")
        token = headers[0].strip()
        if token.lower().startswith(_BEARER):
            token = token[len(_BEARER) :].strip()
        return self._authorizer.verify_token(token, None, self._clock.now())


def _denied(request: web.Request, text: str) -> Exception:
    """To somebody who is signed in, signing in again is of no use; the SDKs know no other word than 401."""
    return Unauthorized(text) if "Authorization" in request.headers else HttpRefusal(403, text)
