"""`$cbs`: a client puts a token for an audience, and has its claims from then on (wire contract 1.6)."""

from __future__ import annotations

import logging
from typing import Final

from tandembus.amqp.encoding.sections import (
    amqp_value_section,
    application_properties_section,
    decode_message,
    properties_section,
)
from tandembus.amqp.encoding.values import int_
from tandembus.clock import Clock
from tandembus.errors import BusError, EntityNotFound, Unauthorized
from tandembus.front_end.amqp.claims_held import ClaimsHeld
from tandembus.front_end.amqp.link_host import LinkHost
from tandembus.front_end.error_texts import error_text
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.paths import parse_link_address
from tandembus.security.claims import Authorizer
from tandembus.security.scopes import strip_host

log = logging.getLogger("tandembus.amqp")

MESSAGE_ID = 0

_STATUSES: Final = {EntityNotFound: 404, Unauthorized: 401}


class TokenNode:
    def __init__(
        self, namespace: Namespace, authorizer: Authorizer, held: ClaimsHeld, clock: Clock, host: LinkHost
    ) -> None:
        self._namespace = namespace
        self._authorizer = authorizer
        self._held = held
        self._clock = clock
        self._host = host

    def answer(self, payload: bytes) -> bytes:
        """The reply to one request. Every failure is a status, never an error of the link."""
        correlation_id: object = None
        audience: object = None
        try:
            request = decode_message(payload, typed=True)
            correlation_id = request.property_at(MESSAGE_ID)
            properties = _plain(request.application_properties or {})
            if properties.get("operation") != "put-token":
                return _reply(correlation_id, 400, "The only operation here is put-token.")
            audience, token = properties.get("name"), request.body
            if not isinstance(audience, str) or not isinstance(token, str):
                return _reply(correlation_id, 400, "put-token needs the audience as `name` and the token as body.")
            self._put(audience, token)
        except BusError as error:
            log.debug("a token is refused: %s", error)
            self._host.refused(error, f"a token for '{audience}'")
            text = error_text(error, self._host.engine.peer_hostname)
            return _reply(correlation_id, _STATUSES.get(type(error), 400), text)
        log.debug("a token is accepted")
        return _reply(correlation_id, 202, "Accepted")

    def _put(self, audience: str, token: str) -> None:
        if not strip_host(audience).strip("/"):
            self._held.put("", self._authorizer.verify_token(token, "", self._clock.now()))
            return
        address = parse_link_address(audience)
        claims = self._authorizer.verify_token(token, address.claim_path, self._clock.now())
        if self._namespace.catalog.find(address.key) is None:
            # Said only to who has a valid token: names are nobody else's business.
            raise self._namespace.not_found(address.path)
        self._held.put(address.claim_path, claims)


def _plain(properties: dict[object, object]) -> dict[str, object]:
    return {str(getattr(key, "value", key)): value for key, value in properties.items()}


def _reply(correlation_id: object, status: int, description: str) -> bytes:
    return (
        properties_section(correlation_id=correlation_id)
        + application_properties_section({"status-code": int_(status), "status-description": description})
        + amqp_value_section(None)
    )
