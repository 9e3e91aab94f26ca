"""The dashboard's cookie: a shared access signature that the browser keeps, and its scripts cannot read.

A browser sends cookies along whoever asks it to. So the cookie counts only beside a header that no page of another
origin can set, and where the browser says who asks, that must be a page of ours.
"""

from __future__ import annotations

import hashlib
import math
import re
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from tandembus.security.sas import TOKEN_PREFIX

SAME_ORIGIN_HEADER: Final = "X-Tandembus"
SAME_ORIGIN_VALUE: Final = "1"
_FIT_FOR_COOKIES: Final = re.compile(r"[A-Za-z0-9_.~%+&=-]{1,4000}", re.ASCII)


def is_from_our_page(request: web.Request) -> bool:
    """A page of another origin could set the header only after asking for leave, which nobody gives it."""
    headers = request.headers
    if headers.getall(SAME_ORIGIN_HEADER, []) != [SAME_ORIGIN_VALUE]:
        return False
    if any(site != "same-origin" for site in headers.getall("Sec-Fetch-Site", [])):
        return False
    return all(_is_host_of(origin, headers.get("Host", "")) for origin in headers.getall("Origin", []))


def _is_host_of(origin: str, host: str) -> bool:
    """The scheme is not compared: there may be a proxy that speaks TLS before us."""
    try:
        return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


class TokenCookie:
    """Cookies know hosts, but no ports: two namespaces on one machine must not overwrite each other's."""

    def __init__(self, namespace_name: str) -> None:
        self._name = f"tandembus-{hashlib.sha256(namespace_name.encode()).hexdigest()[:8]}"

    def name_on(self, request: web.Request) -> str:
        """Inside TLS another one: a browser lets no page without TLS replace a cookie that was set with it. The prefix
        keeps others of the same domain from setting it."""
        return f"__Host-{self._name}" if request.secure else self._name

    def token_of(self, request: web.Request) -> str | None:
        """The token in the request's cookie; None where there is none, or it does not count. Of two cookies none
        does: somebody else may have put one there."""
        name = self.name_on(request)
        found: list[str] = []
        for header in request.headers.getall("Cookie", []):
            for part in header.split(";"):
                given, _, value = part.strip().partition("=")
                if given == name:
                    found.append(value)
        if len(found) != 1 or not is_from_our_page(request):
            return None
        return TOKEN_PREFIX + found[0]

    def put(self, request: web.Request, response: web.Response, token: str, lifetime_s: float) -> None:
        value = token[len(TOKEN_PREFIX) :]
        assert is_fit_for_cookies(token)
        self._set(request, response, value, max(math.ceil(lifetime_s), 1))

    def remove(self, request: web.Request, response: web.Response) -> None:
        self._set(request, response, "", 0)

    def _set(self, request: web.Request, response: web.Response, value: str, max_age_s: int) -> None:
        cookie = f"{self.name_on(request)}={value}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict"
        response.headers["Set-Cookie"] = f"{cookie}; Secure" if request.secure else cookie


def is_fit_for_cookies(token: str) -> bool:
    """Whether a shared access signature can stand in a cookie as it is; those made here always can."""
    return _FIT_FOR_COOKIES.fullmatch(token[len(TOKEN_PREFIX) :]) is not None
