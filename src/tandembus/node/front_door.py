"""One front end of a namespace in this process: AMQP, HTTP and WebSockets on all ports, over whatever namespace it is
given. The same in the only process, in the one that has the catalog, and in one that only is a front end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import final

from tandembus.clock import Clock
from tandembus.config import ServeSettings
from tandembus.descriptions import AuthorizationRule
from tandembus.front_end.amqp.front_end import AmqpFrontEnd
from tandembus.front_end.http.server import build_application, build_runner, http_protocol_factory
from tandembus.front_end.http.surroundings import Surroundings
from tandembus.front_end.listener import Doors, Listener, Refusal
from tandembus.metering.meter import Meter
from tandembus.namespace.namespace import Namespace
from tandembus.namespace.policies import build_authorizer, fixed_policies, policy_of
from tandembus.node.doors import ListeningSockets
from tandembus.node.issuer_keys import IssuerKeys
from tandembus.node.partner import partner_of
from tandembus.security.issuers import Issuers
from tandembus.security.one_time_codes import OneTimeCodes
from tandembus.security.tls import TlsFiles, server_context
from tandembus.tasks import WhenBroken

RenewKey = Callable[[], Awaitable[Sequence[AuthorizationRule]]]


@final
class FrontDoor:
    def __init__(
        self,
        settings: ServeSettings,
        namespace: Namespace,
        meter: Meter,
        root_key: str,
        connection_clock: Clock,
        surroundings: Surroundings,
        when_broken: WhenBroken,
    ) -> None:
        """`connection_clock`: for tokens and time-outs of connections."""
        self._settings = settings
        self._namespace = namespace
        self._meter = meter
        self._clock = connection_clock
        self._partner = partner_of(settings, connection_clock)
        self._surroundings = replace(
            surroundings, codes=OneTimeCodes(settings.data), meter_folder=settings.data / "meter"
        )
        if self._partner is not None:
            ask, name = self._partner.ask, self._partner.name
            self._surroundings = replace(self._surroundings, ask_partner=ask, partner_name=name)
        issuers = Issuers(settings.issuers, settings.limits.max_token_lifetime_s) if settings.issuers else None
        self._issuer_keys = IssuerKeys(issuers, settings.issuers) if issuers is not None else None
        self._when_broken = when_broken
        self._authorizer = build_authorizer(settings, root_key, namespace.catalog, issuers)
        namespace.fixed_policies = fixed_policies(settings, root_key)
        self.front_end = AmqpFrontEnd(namespace, self._authorizer, meter, connection_clock)
        self.front_end.when_broken = when_broken
        self.front_end.has_reservations = settings.reservations
        self.is_ready = False
        self._doors: Doors
        self._listeners: list[Listener] = []

    async def start(self, tls: TlsFiles) -> None:
        """All but the listening."""
        if self._issuer_keys is not None:
            await self._issuer_keys.start(self._when_broken)
        self.front_end.start()
        application = build_application(
            self._namespace,
            self._authorizer,
            self._meter,
            self._clock,
            lambda: self.is_ready,
            self.front_end.connection,
            self._surroundings,
            self.front_end.refusals,
        )
        self._runner = build_runner(application)
        await self._runner.setup()
        self._doors = Doors(
            self.front_end.connection,
            http_protocol_factory(self._runner),
            server_context(tls),
            self._settings.limits,
        )

    def open(self, sockets: ListeningSockets) -> None:
        """From now on connections are taken."""
        self._listeners += [Listener(self._doors, one) for one in sockets.sockets]

    def take_key(self, root_key: str) -> Sequence[AuthorizationRule]:
        """Another root key: the old one is worth nothing from the next moment on."""
        fixed = fixed_policies(self._settings, root_key)
        self._authorizer.set_policies("", [policy_of(rule) for rule in fixed])
        self._namespace.fixed_policies = fixed
        return fixed

    @property
    def connection_count(self) -> int:
        return self.front_end.connection_count

    @property
    def open_count(self) -> int:
        """Connections of all kinds, also those that have not said yet what they speak."""
        return self._doors.open_count

    @property
    def refusals(self) -> Counter[Refusal]:
        """Connections that were not accepted, or ended without a valid claim."""
        return self._doors.refusals

    # The end.

    def close(self) -> None:
        """Nobody new comes in, and nothing more is taken from those who are there."""
        self.is_ready = False
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        self.front_end.stop_reading()

    async def stop(self) -> None:
        """Those who are there are told to come back later."""
        if self._issuer_keys is not None:
            self._issuer_keys.stop()
        await self.front_end.stop()
        await self._runner.cleanup()
        if self._partner is not None:
            await self._partner.close()
