"""Signing in to the dashboard, and out: a key, a connection string or a one-time code becomes a cookie.

The cookie is a token like any other (`cookies.py`), so a session needs no memory here: it holds on every front end and
after a restart, and ends when its key does.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from aiohttp import web

from tandembus import __version__
from tandembus.clock import Clock
from tandembus.errors import InvalidArgument, Unauthorized
from tandembus.front_end.http.access import Access
from tandembus.front_end.http.api.routes import Document, Route, read_document, told
from tandembus.front_end.http.api.sign_in_pace import SignInPace
from tandembus.front_end.http.cookies import SAME_ORIGIN_HEADER, TokenCookie, is_fit_for_cookies, is_from_our_page
from tandembus.front_end.http.request import HttpRefusal, connection_of
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.http.values import format_time
from tandembus.namespace.namespace import Namespace
from tandembus.security.claims import Authorizer, Claims, Right
from tandembus.security.sas import ROOT_POLICY, is_sas_token, make_token, parse_connection_string

SESSION_LIFETIME_S: Final = 8 * 3_600.0
MAX_SIGN_IN_BYTES: Final = 16 * 1024
MAX_TEXT_LENGTH: Final = 512
"""Of a policy's name, a key or a path."""
_FORMS: Final = ({"connection_string"}, {"key_name", "key"}, {"key_name", "key", "entity"}, {"code"})
_WRONG: Final = "What you sign in with is wrong, or not valid any more."


@dataclass(frozen=True, slots=True)
class SignIn:
    """Whose key, and for what."""

    policy: str
    key: str
    scope: str = ""


class SessionRoutes:
    def __init__(
        self,
        namespace: Namespace,
        authorizer: Authorizer,
        access: Access,
        cookie: TokenCookie,
        clock: Clock,
        surroundings: Surroundings,
    ) -> None:
        self._namespace = namespace
        self._authorizer = authorizer
        self._access = access
        self._cookie = cookie
        self._clock = clock
        self._codes = surroundings.codes
        self._partner_name = surroundings.partner_name
        self._pace = SignInPace()

    def routes(self) -> list[Route]:
        return [
            Route("POST", "session", self._sign_in, is_about_itself=True),
            Route("GET", "session", self._tell, is_about_itself=True),
            Route("DELETE", "session", self._sign_out, is_about_itself=True),
        ]

    async def _sign_in(self, request: web.Request) -> web.Response:
        """Also a page that signs somebody else's browser in is refused."""
        _check_is_from_our_page(request)
        document = await read_document(request, MAX_SIGN_IN_BYTES)
        address = request.remote or ""
        # A code cannot be guessed, and so the machine's own people get in while others try keys.
        is_paced = "code" not in document
        wait_s = self._pace.take(address, self._clock.monotonic()) if is_paced else 0.0
        if wait_s > 0.0:
            again_s = math.ceil(wait_s)
            text = f"There were too many wrong sign-ins. The next one may be tried in {again_s} s."
            raise HttpRefusal(429, text, {"Retry-After": str(again_s)})
        try:
            token = self._token_for(document)
            claims = self._authorizer.verify_token(token, None, self._clock.now())
            if is_paced:
                self._pace.give_back(address)
        except Unauthorized:
            await asyncio.sleep(connection_of(request).timings.refused_sign_in_s)
            raise Unauthorized(_WRONG) from None
        connection_of(request).claim_shown()
        response = told(self._document(claims))
        lifetime_s = min(claims.expires_at - self._clock.now(), SESSION_LIFETIME_S)
        self._cookie.put(request, response, token, lifetime_s)
        return response

    async def _tell(self, request: web.Request) -> web.Response:
        """204 where nobody is signed in: a page that asks is no attempt, and browsers tell every 401 as an error."""
        try:
            return told(self._document(self._access.check_any(request)))
        except Unauthorized:
            if "Authorization" in request.headers:
                raise
            return web.Response(status=204)

    async def _sign_out(self, request: web.Request) -> web.Response:
        """Whoever asks: what is left of a session that is over goes, too."""
        _check_is_from_our_page(request)
        response = web.Response(status=204)
        self._cookie.remove(request, response)
        return response

    def _token_for(self, document: Document) -> str:
        """Signed with the key that was given: whether that is one is told by verifying it. Raises Unauthorized."""
        given = _texts(document)
        if "code" in given:
            return self._made(self._redeemed(given["code"]))
        if "connection_string" not in given:
            return self._made(SignIn(given["key_name"], given["key"], given.get("entity", "")))
        wanted = parse_connection_string(given["connection_string"])
        if wanted.signature is not None:
            return _ready(wanted.signature)
        if wanted.key_name is None or wanted.key is None:
            raise InvalidArgument("The connection string has no key.")
        return self._made(SignIn(wanted.key_name, wanted.key, wanted.entity_path or ""))

    def _redeemed(self, code: str) -> SignIn:
        root = self._authorizer.policies().get(ROOT_POLICY)
        if self._codes is None or root is None or not self._codes.redeem(code, self._clock.now()):
            raise Unauthorized(_WRONG)
        return SignIn(ROOT_POLICY, root.primary_key)

    def _made(self, wanted: SignIn) -> str:
        uri = f"sb://{self._namespace.name}/{quote(wanted.scope.strip('/'))}"
        token = make_token(uri, wanted.policy, wanted.key, self._clock.now() + SESSION_LIFETIME_S)
        return _ready(token)

    def _document(self, claims: Claims) -> Document:
        limits = self._namespace.limits
        return {
            "namespace": self._namespace.name,
            "version": __version__,
            "policy": claims.policy,
            "scope": self._path_of(claims.scope),
            "rights": sorted(right.value for right in claims.rights),
            "expires_at": format_time(claims.expires_at),
            "partner": self._partner_name() if self._access.allows(claims, Right.MANAGE, "") else None,
            "limits": {
                "max_message_size_bytes": limits.max_message_size_bytes,
                "max_name_length": limits.max_name_length,
                "max_sql_length": limits.max_sql_length,
                "max_user_metadata_length": limits.max_user_metadata_length,
                "size_choices_megabytes": list(limits.size_choices_megabytes),
            },
        }

    def _path_of(self, scope: str) -> str:
        """As it was written when the entity was created; scopes are in lower case."""
        entry = self._namespace.catalog.find(scope) if scope else None
        return scope if entry is None else entry.description.path


def _check_is_from_our_page(request: web.Request) -> None:
    if not is_from_our_page(request):
        raise HttpRefusal(403, f"The request must come from a page of this namespace, with {SAME_ORIGIN_HEADER}: 1.")


def _texts(document: Document) -> dict[str, str]:
    """Raises InvalidArgument, which repeats nothing of what may be a key."""
    if set(document) not in _FORMS:
        raise InvalidArgument("Sign in with a connection_string, with a key_name and a key (and an entity), or a code.")
    texts: dict[str, str] = {}
    for name, value in document.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"'{name}' must be a text.")
        # Also refuses halves of characters, which no text can be signed with.
        if not value.isprintable():
            raise InvalidArgument(f"'{name}' contains characters that cannot be printed.")
        if name != "connection_string" and len(value) > MAX_TEXT_LENGTH:
            raise InvalidArgument(f"'{name}' has more than {MAX_TEXT_LENGTH} characters.")
        texts[name] = value
    return texts


def _ready(token: str) -> str:
    if not is_sas_token(token) or not is_fit_for_cookies(token):
        raise Unauthorized(_WRONG)
    return token
