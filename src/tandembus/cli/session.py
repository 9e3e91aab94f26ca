"""`tandembus session`: list sessions, look at their state and change it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from tandembus.cli.arguments import content_of, entity_argument, input_option, past_moment
from tandembus.cli.output import counted, print_json, say, text_and_base64, text_or_binary
from tandembus.cli.target import Target, confirmed, namespace_options, watchable
from tandembus.client import SessionReceiver

ACCEPT_WAIT_S: Final = 10.0

session_argument: Final = click.argument("session")


@click.group()
def session() -> None:
    """List sessions, look at their state and change it.

    \b
    ENTITY is a queue or TOPIC/subscriptions/NAME that requires sessions. A session's messages:
      tandembus send orders "hello" --session-id customer-7
      tandembus peek orders --session customer-7
      tandembus receive orders --session customer-7
    A session is locked while its state is read or changed, so nobody else may hold it.
    """


@session.command("list")
@entity_argument
@click.option("--since", type=past_moment, help="Only sessions whose state was set since then, such as 1h.")
@watchable
async def list_sessions(target: Target, entity: str, since: float | None) -> None:
    """List the sessions of an entity that have messages or a state."""
    found = False
    async with await target.connect() as namespace:
        management = await namespace.management(entity)
        async for session_id in management.sessions(since):
            found = True
            target.answer({"session_id": session_id}, session_id)
    if not found and not target.as_json:
        say(("no sessions", "dim"))


@session.command("show-state")
@entity_argument
@session_argument
@namespace_options
async def show_state(target: Target, entity: str, session: str) -> None:
    """Print the state of a session."""
    async with _locked(target, entity, session) as receiver:
        state = await receiver.state()
    if target.as_json:
        text, encoded = (None, None) if state is None else text_and_base64(state)
        print_json({"session_id": session, "state": text, "state_base64": encoded})
    elif state is None:
        say(("no state", "dim"))
    else:
        click.echo(text_or_binary(state))


@session.command("set-state")
@entity_argument
@session_argument
@click.argument("state", required=False)
@input_option("state")
@namespace_options
async def set_state(target: Target, entity: str, session: str, state: str | None, file: Path | None) -> None:
    """Store a state with a session, in place of what is there.

    STATE is the text to store; `-`, or none at all with something piped in, reads standard input.

    \b
    Examples:
      tandembus session set-state orders customer-7 "waiting for payment"
    """
    content = content_of("state", state, file)
    async with _locked(target, entity, session) as receiver:
        await receiver.set_state(content)
    record = {"session_id": session, "bytes": len(content)}
    target.answer(record, ("stored", "green"), f" {counted(len(content), 'byte')} with the session ", (session, "bold"))


@session.command("clear-state")
@entity_argument
@session_argument
@confirmed(lambda entity, session: f"Remove the state of the session {session} of {entity}?")
async def clear_state(target: Target, entity: str, session: str) -> None:
    """Remove the state of a session; its messages stay.

    Asks first when a person is there to answer.
    """
    async with _locked(target, entity, session) as receiver:
        await receiver.set_state(None)
    target.answer({"session_id": session, "cleared": True}, ("cleared", "green"), " the state of ", (session, "bold"))


@asynccontextmanager
async def _locked(target: Target, entity: str, session_id: str) -> AsyncIterator[SessionReceiver]:
    async with await target.connect() as namespace:
        receiver = await namespace.accept_session(entity, session_id, ACCEPT_WAIT_S)
        try:
            yield receiver
        finally:
            await receiver.close()
