"""Receives the messages of one session, in order and alone, and keeps the session's state."""

from __future__ import annotations

import asyncio
from typing import Final

from tandembus.amqp.encoding.terminus import source
from tandembus.amqp.encoding.values import uint
from tandembus.client.connection import Connection
from tandembus.client.management import Management
from tandembus.client.messages import ReceivedMessage
from tandembus.client.receiver import ReceiveMode, Receiver
from tandembus.errors import BusError, MalformedData, SessionLockLost

SESSION_FILTER: Final = "com.microsoft:session-filter"
LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
TIMEOUT: Final = "com.microsoft:timeout"
LONGEST_WAIT_S: Final = 4_294_967.0
"""What the protocol's number can hold: 49 days."""
TICKS_OF_1970: Final = 621_355_968_000_000_000
TICKS_PER_S: Final = 10_000_000


class SessionReceiver(Receiver):
    """A receiver that holds the lock of `session_id` until `locked_until`. Made by `ServiceBus.accept_session`.

    The lock belongs to the link: it ends with `close`, with the connection, or when it is not renewed in time. From
    then on everything raises `SessionLockLost`, and what was not settled goes back to the session.
    """

    def __init__(
        self,
        connection: Connection,
        address: str,
        session_id: str | None,
        wait_s: float,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        prefetch: int = 0,
    ) -> None:
        super().__init__(
            connection,
            address,
            mode,
            prefetch,
            source(address, {SESSION_FILTER: session_id}),
            {TIMEOUT: uint(round(min(max(wait_s, 0.0), LONGEST_WAIT_S) * 1000))},
        )
        self.session_id = session_id or ""
        self.locked_until = 0.0
        self._management: Management | None = None
        self._opening: Final = asyncio.Lock()

    async def renew(self) -> float:
        """Keep the session for another lock duration from now; until when that is."""
        self.locked_until = await (await self._node()).renew_session(self.session_id, self.name)
        return self.locked_until

    async def state(self) -> bytes | None:
        """What was last stored with the session; None if nothing is."""
        return await (await self._node()).session_state(self.session_id, self.name)

    async def set_state(self, state: bytes | None) -> None:
        """Store this with the session, beyond the life of this receiver; None removes it."""
        await (await self._node()).set_session_state(self.session_id, state, self.name)

    async def peek(self, from_sequence_number: int = 1, max_messages: int = 100) -> list[ReceivedMessage]:
        """The session's messages in any state, without taking them."""
        return await (await self._node()).peek(from_sequence_number, max_messages, self.session_id)

    async def close(self) -> None:
        if self._management is not None:
            await self._management.close()
            self._management = None
        await super().close()

    def on_attached(self) -> None:
        """The service says which session it is, and for how long."""
        terminus, properties = self._link.source, self._link.properties or {}
        accepted = (terminus.filter or {}).get(SESSION_FILTER) if terminus is not None else None
        if not isinstance(accepted, str):
            self.on_lost(MalformedData("the service gave a receiver without saying of which session"))
            self._link.detach()
            return
        self.session_id = accepted
        ticks = properties.get(LOCKED_UNTIL)
        self.locked_until = (ticks - TICKS_OF_1970) / TICKS_PER_S if isinstance(ticks, int) else 0.0
        super().on_attached()

    async def _node(self) -> Management:
        self.raise_if_lost()
        async with self._opening:
            if self._management is None:
                management = Management(self.connection, self.address)
                await management.open()
                self._management = management
        return self._management

    def _locks_lost(self, failure: Exception) -> BusError:
        if isinstance(failure, SessionLockLost):
            return failure
        return SessionLockLost(f"the session's lock went with its link: {failure}")
