"""`tandembus receive`."""

from __future__ import annotations

from typing import Final

import click

from tandembus.cli import receiving
from tandembus.cli.arguments import entity as entity_argument
from tandembus.cli.arguments import sub_queue_option
from tandembus.cli.output import say
from tandembus.cli.parameters import duration
from tandembus.cli.receiving import Settlement, Wanted
from tandembus.cli.target import Target, namespace_options
from tandembus.client import ReceiveMode, SubQueue, connect

FOLLOW_WAIT_S: Final = 60.0


@click.command()
@entity_argument
@click.option(
    "--max",
    "limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after so many.  [default: 1; no limit with --follow]",
)
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
@click.option(
    "--deferred",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    multiple=True,
    help="Receive the deferred message with this sequence number; may be repeated.",
)
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
) -> None:  # fmt: skip
    """Receive messages from a queue or subscription and settle them.

    ENTITY is a queue, or TOPIC/subscriptions/NAME. A message is settled only after it is printed. With --mode
    receive-and-delete it is gone on delivery: that is what the mode means. Nothing to receive is no failure: the exit
    code is 0.

    An entity that requires sessions is received from with --session or --next-session; the session's lock is renewed
    as long as this runs. With --follow, --next-session goes from session to session.

    \b
    Examples:
      tandembus receive orders
      tandembus receive orders --max 100 --wait 1s --json > orders.jsonl
      tandembus receive orders --follow
      tandembus receive events/subscriptions/audit --max 10
      tandembus receive orders --dead-letter --reason "cannot be parsed"
      tandembus receive orders --sub-queue dead-letter --max 10
      tandembus receive orders --session customer-7 --max 100
      tandembus receive orders --next-session --follow
      tandembus receive orders --deferred 17 --deferred 18

    \b
    JSON: one message per line: {"sequence_number", "message_id", "body", "body_base64", "properties",
      "subject", "content_type", "correlation_id", "session_id", "to", "reply_to", "reply_to_session_id",
      "partition_key", "time_to_live_s", "state", "delivery_count", "enqueued_at", "scheduled_at",
      "locked_until", "lock_token", "dead_letter_reason", "dead_letter_description"}
    """
    action = _chosen([name.replace("_", "-") for name, is_chosen in actions.items() if is_chosen], mode, follow)
    if action != "dead-letter" and (reason or description):
        raise click.UsageError("--reason and --description go with --dead-letter.")
    _check_source(session_id, next_session, sub_queue, deferred, follow or limit is not None)
    wanted = Wanted(
        entity=entity,
        part=None if sub_queue is None else SubQueue(sub_queue),
        mode=ReceiveMode(mode),
        settlement=Settlement(action, reason, description) if mode == ReceiveMode.PEEK_LOCK.value else None,
        limit=1 if limit is None and not follow else limit,
        wait_s=FOLLOW_WAIT_S if follow else wait_s,
        follow=follow,
        as_json=target.as_json,
        session_id=session_id,
        next_session=next_session,
    )
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        if deferred:
            received = await receiving.receive_deferred(namespace, wanted, deferred)
        else:
            received = await receiving.receive(namespace, wanted)
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
