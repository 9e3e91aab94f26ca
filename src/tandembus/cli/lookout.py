"""Which backlog queues the program empties: those of one primary, from 0 on without a gap, also such as are made later.

Found by attaching to them: that needs no more than the right to receive, and is no operation that anybody charges for,
so that waiting costs no more than the long polls (N11). What lies behind a gap is left alone (N3), and told.
"""

from __future__ import annotations

import logging
from typing import Final

import click

from tandembus.cli.pair_target import PairTarget
from tandembus.client import ClientFailure
from tandembus.client.administration import Administration
from tandembus.errors import EntityDisabled, EntityNotFound, InvalidOperation, OperationTimeout
from tandembus.pairing.aliases import MAX_BACKLOG_QUEUES, backlog_path
from tandembus.pairing.client_ports import SharedConnection
from tandembus.pairing.primary_name import chosen_name, disagreement
from tandembus.pairing.status import backlogs_in
from tandembus.security.sas import parse_connection_string

log: Final = logging.getLogger("tandembus.syphon")
USUAL_BACKLOG_QUEUES: Final = 10
NO_ANSWER: Final = (OSError, OperationTimeout)


class Lookout:
    """Knows the primary's name, and how many of its backlog queues have been found so far."""

    def __init__(
        self, target: PairTarget, given_name: str | None, secondary: SharedConnection, answer_timeout_s: float
    ) -> None:
        self._target: Final = target
        self._given_name: Final = given_name
        self._secondary: Final = secondary
        self._answer_timeout_s: Final = answer_timeout_s
        self._name: str | None = None
        self._is_name_settled = False
        self._count = 0
        self._was_empty = False

    @property
    def name(self) -> str:
        assert self._name is not None
        return self._name

    async def learn_name(self) -> None:
        """Asks the primary, unless a name was given. As long as it does not answer, its data folder or its host does,
        else the backlog queues that are there, if all are of one primary."""
        if self._is_name_settled:
            return
        host = parse_connection_string(self._target.primary).host
        own = await self._own_name() if self._given_name is None else None
        own = own or self._target.primary_name
        name = _chosen(self._given_name, own, host) or await self._only_name()
        if name is None:
            raise click.UsageError(f"{host} does not tell the name of the primary namespace: give --primary-name.")
        if name != self._name:
            self._name, self._was_empty = name, False
            if (difference := disagreement(own, host)) is not None:
                log.warning("%s", difference)

    async def _own_name(self) -> str | None:
        target = self._target
        self._is_name_settled = True
        try:
            async with Administration(
                target.primary, ca_path=target.primary_ca, timeout_s=self._answer_timeout_s
            ) as primary:
                return await primary.namespace_name()
        except ClientFailure as error:
            self._is_name_settled = not isinstance(error, NO_ANSWER)
            if self._name is None:
                log.warning("the primary does not tell its name now: %s", error)
            return None

    async def _only_name(self) -> str | None:
        """Of the only primary that has backlog queues there, as far as we may look: that takes Manage."""
        target = self._target
        try:
            async with Administration(
                target.secondary, ca_path=target.secondary_ca, timeout_s=self._answer_timeout_s
            ) as secondary:
                names = list(backlogs_in([queue.name async for queue in secondary.queues()]))
        except ClientFailure as error:
            log.warning("the secondary does not tell whose backlog queues it has: %s", error)
            return None
        return names[0] if len(names) == 1 else None

    async def look(self) -> list[str]:
        """The queues that were not there when it looked last."""
        if self._count == 0:
            await self.learn_name()
        found: list[str] = []
        while self._count < MAX_BACKLOG_QUEUES and await self.is_there(self._count):
            found.append(backlog_path(self.name, self._count))
            self._count += 1
        if self._count == 0 and not self._was_empty:
            self._was_empty = True
            log.warning("there are no backlog queues of '%s' yet; is it the right --primary-name?", self.name)
        return found

    async def tell_extra(self) -> None:
        """Of queues behind a gap."""
        extra = [index for index in range(self._count + 1, USUAL_BACKLOG_QUEUES) if await self.is_there(index)]
        if extra:
            log.warning(
                "%s is missing: what is in those behind it (%s) stays there; --backlog-queues %d empties them, too",
                backlog_path(self.name, self._count),
                ", ".join(str(index) for index in extra),
                extra[-1] + 1,
            )

    async def is_there(self, index: int) -> bool:
        try:
            receiver = await (await self._secondary.get()).receiver(backlog_path(self.name, index))
        except EntityNotFound:
            return False
        except (EntityDisabled, InvalidOperation):
            return True  # Why nobody can receive from it now, its syphon will tell.
        await receiver.close()
        return True


def _chosen(given: str | None, own: str | None, host: str) -> str | None:
    try:
        return chosen_name(given, own, host)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
