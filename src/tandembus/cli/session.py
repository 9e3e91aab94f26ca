"""`tandembus session`: list sessions, look at their state and change it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import click

from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.output import counted, print_json, say, text_and_base64, text_or_binary
from tandembus.cli.parameters import content_of, past_moment
from tandembus.cli.target import Target, confirmed, namespace_options
from tandembus.client import SessionReceiver, connect

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
    """


@session.command("list")
@entity_argument
@click.option("--since", type=past_moment, help="Only sessions whose state was set since then.")
@namespace_options
async def list_sessions(target: Target, entity: str, since: float | None) -> None:
    """List the sessions of an entity that have messages or a state.

    \b
    Examples:
      tandembus session list orders
      tandembus session list orders --since 1h
      tandembus session list orders --since 2030-01-31T08:00:00Z

    \b
    JSON: one session per line: {"session_id"}
    """
    found = False
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        management = await namespace.management(entity)
        async for session_id in management.sessions(since):
            found = True
            if target.as_json:
                print_json({"session_id": session_id})
            else:
                say(session_id)
    if not found and not target.as_json:
        say(("no sessions", "dim"))


@session.command("show-state")
@entity_argument
@session_argument
@namespace_options
async def show_state(target: Target, entity: str, session: str) -> None:
    """Print the state of a session.

    The session is locked for that moment, so nobody else may hold it.

    \b
    Examples:
      tandembus session show-state orders customer-7

    \b
    JSON: {"session_id", "state": text | null, "state_base64": other bytes | null}
    """
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
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Read the state from here.",
)
@namespace_options
async def set_state(target: Target, entity: str, session: str, state: str | None, file: Path | None) -> None:
    """Store a state with a session, in place of what is there.

    STATE is the text to store; `-`, or none at all with something piped in, reads standard input. The session is locked
    for that moment, so nobody else may hold it.

    \b
    Examples:
      tandembus session set-state orders customer-7 "waiting for payment"
      tandembus session set-state orders customer-7 --file state.json

    \b
    JSON: {"session_id", "bytes"}
    """
    content = content_of("state", state, file)
    async with _locked(target, entity, session) as receiver:
        await receiver.set_state(content)
    if target.as_json:
        print_json({"session_id": session, "bytes": len(content)})
    else:
        say(("stored", "green"), f" {counted(len(content), 'byte')} with the session ", (session, "bold"))


@session.command("clear-state")
@entity_argument
@session_argument
@confirmed(lambda entity, session: f"Remove the state of the session {session} of {entity}?")
async def clear_state(target: Target, entity: str, session: str) -> None:
    """Remove the state of a session; its messages stay.

    The session is locked for that moment, so nobody else may hold it. Asks first when a person is there to answer.

    \b
    Examples:
      tandembus session clear-state orders customer-7

    \b
    JSON: {"session_id", "cleared": true}
    """
    async with _locked(target, entity, session) as receiver:
        await receiver.set_state(None)
    if target.as_json:
        print_json({"session_id": session, "cleared": True})
    else:
        say(("cleared", "green"), " the state of ", (session, "bold"))


@asynccontextmanager
async def _locked(target: Target, entity: str, session_id: str) -> AsyncIterator[SessionReceiver]:
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        receiver = await namespace.accept_session(entity, session_id, ACCEPT_WAIT_S)
        try:
            yield receiver
        finally:
            await receiver.close()
