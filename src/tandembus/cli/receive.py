"""`tandembus receive`: from a queue or subscription, from sessions, or by sequence number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import click

from tandembus.cli.arguments import duration, entity_argument, limit_option, number, sub_queue_option
from tandembus.cli.output import message_record, print_json, print_message, say
from tandembus.cli.target import Target, namespace_options, part_of
from tandembus.client import (
    Disposition,
    ReceivedMessage,
    ReceiveMode,
    Receiver,
    ServiceBus,
    SessionReceiver,
    SubQueue,
)
from tandembus.client.errors import ClientFailure
from tandembus.clock import SystemClock
from tandembus.errors import OperationTimeout

BATCH: Final = 100
FOLLOW_WAIT_S: Final = 60.0
REST_WAIT_S: Final = 1.0
"""How long an accepted session may be silent before the next one is asked for."""
SHORTEST_RENEWAL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ReceiveWanted:
    """What is to be received, and what happens to a message once it is printed. `action` is None where the service
    deletes on delivery."""

    entity: str
    part: SubQueue | None
    mode: ReceiveMode
    action: Disposition | None
    why: dict[str, Any]
    """Reason and description of a dead letter."""
    limit: int | None
    wait_s: float
    follow: bool
    as_json: bool

    def show(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if self.as_json:
                print_json(message_record(message))
            else:
                print_message(message)

    async def settle(self, receiver: Receiver, messages: Sequence[ReceivedMessage]) -> None:
        match self.action:
            case Disposition.COMPLETE:
                await receiver.complete(*messages)
            case Disposition.ABANDON:
                await receiver.abandon(*messages)
            case Disposition.DEFER:
                await receiver.defer(*messages)
            case Disposition.DEAD_LETTER:
                await receiver.dead_letter(*messages, **self.why)


@click.command()
@entity_argument
@limit_option(None, "1; no limit with --follow")
@click.option(
    "--wait",
    "wait_s",
    type=duration,
    default="5s",
    show_default=True,
    help="How long to wait for the first message, or for a session.",
)
@click.option(
    "--mode",
    type=click.Choice([each.value for each in ReceiveMode]),
    default=ReceiveMode.PEEK_LOCK.value,
    show_default=True,
    help="Lock and settle, or have it deleted on delivery.",
)
@click.option("--complete", is_flag=True, help="Delete what was received (the default).")
@click.option("--abandon", is_flag=True, help="Give it back; counts as a delivery. Not with --follow.")
@click.option("--defer", is_flag=True, help="Put it aside, to be received by its number; counts as a delivery.")
@click.option("--dead-letter", is_flag=True, help="Move it to the dead-letter queue.")
@click.option("--reason", help="Why, with --dead-letter.")
@click.option("--description", help="Why in more words, with --dead-letter.")
@sub_queue_option("Receive from this sub-queue.")
@click.option("--session", "session_id", metavar="ID", help="Receive from this session.")
@click.option("--next-session", is_flag=True, help="Receive from the next session that has messages.")
@number("--deferred", "Receive the deferred message with this sequence number; may be repeated.", multiple=True)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
@namespace_options
async def receive(
    target: Target,
    entity: str,
    limit: int | None,
    wait_s: float,
    mode: str,
    reason: str | None,
    description: str | None,
    sub_queue: str | None,
    session_id: str | None,
    next_session: bool,
    deferred: tuple[int, ...],
    follow: bool,
    **actions: bool,
) -> None:
    """Receive messages from a queue or subscription and settle them.

    ENTITY is a queue, or TOPIC/subscriptions/NAME. A message is settled only after it is printed. With --mode
    receive-and-delete it is gone on delivery: that is what the mode means. Nothing to receive is no failure: the exit
    code is 0.

    An entity that requires sessions is received from with --session or --next-session; the session's lock is renewed
    as long as this runs. With --follow, --next-session goes from session to session.

    \b
    Examples:
      tandembus receive orders --max 100 --wait 1s --json > orders.jsonl
      tandembus receive events/subscriptions/audit --follow
      tandembus receive orders --dead-letter --reason "cannot be parsed"
      tandembus receive orders --sub-queue dead-letter --max 10
      tandembus receive orders --next-session --follow
      tandembus receive orders --deferred 17 --deferred 18
    """
    action = _chosen([name.replace("_", "-") for name, is_chosen in actions.items() if is_chosen], mode, follow)
    if action != "dead-letter" and (reason or description):
        raise click.UsageError("--reason and --description go with --dead-letter.")
    _check_source(session_id, next_session, sub_queue, deferred, follow or limit is not None)
    wanted = ReceiveWanted(
        entity=entity,
        part=part_of(sub_queue),
        mode=ReceiveMode(mode),
        action=Disposition[action.upper().replace("-", "_")] if mode == ReceiveMode.PEEK_LOCK.value else None,
        why={"reason": reason, "description": description},
        limit=1 if limit is None and not follow else limit,
        wait_s=FOLLOW_WAIT_S if follow else wait_s,
        follow=follow,
        as_json=target.as_json,
    )
    async with await target.connect() as namespace:
        if next_session:
            received = await _from_sessions(namespace, wanted)
        elif session_id is not None:
            async with _accepted(namespace, wanted, session_id) as session:
                received = await _from_one(namespace, session, wanted, deferred)
        else:
            received = await _from_one(namespace, None, wanted, deferred)
    if received == 0 and not target.as_json:
        what = "session with messages" if next_session else "messages"
        say((f"no {what} within {wanted.wait_s:g} s", "dim"))


def _chosen(actions: list[str], mode: str, follow: bool) -> str:
    """The one thing to do with what is received; refuses choices that exclude each other."""
    if len(actions) > 1:
        raise click.UsageError(f"Choose one of {', '.join(f'--{action}' for action in actions)}.")
    action = actions[0] if actions else "complete"
    if action != "complete" and mode == ReceiveMode.RECEIVE_AND_DELETE.value:
        raise click.UsageError(f"--{action} needs --mode peek-lock: with {mode} a message is gone on delivery.")
    if action == "abandon" and follow:
        raise click.UsageError("--abandon does not go with --follow: it would receive the same messages for ever.")
    return action


def _check_source(
    session_id: str | None, next_session: bool, sub_queue: str | None, deferred: tuple[int, ...], has_amount: bool
) -> None:
    """One place to receive from; what is asked for by number needs no amount."""
    if session_id is not None and next_session:
        raise click.UsageError("Choose one of --session and --next-session.")
    if sub_queue is not None and (session_id is not None or next_session):
        raise click.UsageError("Sub-queues have no sessions: leave --session and --next-session out.")
    if deferred and next_session:
        raise click.UsageError("--deferred needs to know the session: name it with --session.")
    if deferred and has_amount:
        raise click.UsageError("--deferred names the messages: leave --max and --follow out.")


async def _from_one(
    namespace: ServiceBus, session: SessionReceiver | None, wanted: ReceiveWanted, numbers: Sequence[int]
) -> int:
    if numbers:
        return await _by_number(namespace, session, wanted, numbers)
    return await _from(session or await namespace.receiver(wanted.entity, wanted.part, mode=wanted.mode), wanted)


async def _by_number(
    namespace: ServiceBus, session: SessionReceiver | None, wanted: ReceiveWanted, numbers: Sequence[int]
) -> int:
    """All of these, or none: the service does not say which of them is not there."""
    management = await namespace.management(wanted.entity, wanted.part)
    session_id, link_name = (None, None) if session is None else (session.session_id, session.name)
    messages = await management.receive_deferred(numbers, wanted.mode, session_id=session_id, link_name=link_name)
    wanted.show(messages)
    if wanted.action is not None:
        # They came on no link, so they are settled by their lock tokens.
        tokens = [message.lock_token for message in messages if message.lock_token is not None]
        await management.settle(wanted.action, tokens, **wanted.why, session_id=session_id, link_name=link_name)
    return len(messages)


async def _from_sessions(namespace: ServiceBus, wanted: ReceiveWanted) -> int:
    """The next session that has messages; when following, one after the other."""
    received = 0
    while True:
        left = None if wanted.limit is None else wanted.limit - received
        try:
            async with _accepted(namespace, wanted, None) as session:
                received += await _from(session, replace(wanted, limit=left, wait_s=REST_WAIT_S, follow=False))
        except OperationTimeout:
            if not wanted.follow:
                return received
        if not wanted.follow or received == wanted.limit:
            return received


@asynccontextmanager
async def _accepted(
    namespace: ServiceBus, wanted: ReceiveWanted, session_id: str | None
) -> AsyncIterator[SessionReceiver]:
    """A session's receiver, whose lock is renewed until the end of the block."""
    session = await namespace.accept_session(wanted.entity, session_id, wanted.wait_s, mode=wanted.mode)
    renewing = asyncio.create_task(_keep(session))
    try:
        yield session
    finally:
        renewing.cancel()
        await session.close()


async def _keep(session: SessionReceiver) -> None:
    """Renews the lock at half of its time. The receiver itself reports a lock that is lost."""
    clock = SystemClock()
    try:
        while True:
            await asyncio.sleep(max((session.locked_until - clock.now()) / 2, SHORTEST_RENEWAL_S))
            await session.renew()
    except ClientFailure:
        return


async def _from(receiver: Receiver, wanted: ReceiveWanted) -> int:
    """Until the limit is reached or, unless it follows, until there is nothing more right now."""
    received = 0
    given_back: set[int] = set()
    while wanted.limit is None or received < wanted.limit:
        size = BATCH if wanted.limit is None else min(BATCH, wanted.limit - received)
        messages = await receiver.receive(size, wanted.wait_s)
        if any(message.sequence_number in given_back for message in messages):
            # Everything there was has been given back once: more of it would only fill the dead letters.
            await receiver.release(*messages)
            break
        wanted.show(messages)
        await wanted.settle(receiver, messages)
        if wanted.action is Disposition.ABANDON:
            given_back.update(message.sequence_number for message in messages)
        received += len(messages)
        if len(messages) < size and not wanted.follow:
            break
    return received
