"""`tandembus receive`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from tandembus.cli.output import message_record, print_json, print_message, say
from tandembus.cli.parameters import duration
from tandembus.cli.target import TRANSFER_NOTE, Target, namespace_options
from tandembus.client import ReceivedMessage, ReceiveMode, Receiver, SubQueue, connect

BATCH: Final = 100
FOLLOW_WAIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Settlement:
    """What happens to a message once it is printed."""

    action: str
    reason: str | None
    description: str | None

    async def apply(self, receiver: Receiver, messages: Sequence[ReceivedMessage]) -> None:
        match self.action:
            case "complete":
                await receiver.complete(*messages)
            case "abandon":
                await receiver.abandon(*messages)
            case "defer":
                await receiver.defer(*messages)
            case _:
                await receiver.dead_letter(*messages, reason=self.reason, description=self.description)


@click.command()
@click.argument("queue")
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
    help="How long to wait for the first.",
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
@click.option("--defer", is_flag=True, help="Put it aside, to be received by its sequence number.")
@click.option("--dead-letter", is_flag=True, help="Move it to the dead-letter queue.")
@click.option("--reason", help="Why, with --dead-letter.")
@click.option("--description", help="Why in more words, with --dead-letter.")
@click.option(
    "--sub-queue",
    type=click.Choice([each.value for each in SubQueue]),
    help=f"Receive from this sub-queue; {TRANSFER_NOTE}.",
)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
@namespace_options
async def receive(
    target: Target,
    queue: str,
    limit: int | None,
    wait_s: float,
    mode: str,
    reason: str | None,
    description: str | None,
    sub_queue: str | None,
    follow: bool,
    **actions: bool,
) -> None:  # fmt: skip
    """Receive messages from a queue and settle them.

    A message is settled only after it is printed. With --mode receive-and-delete it is gone on delivery: that is
    what the mode means. Nothing to receive is no failure: the exit code is 0.

    \b
    Examples:
      tandembus receive orders
      tandembus receive orders --max 100 --wait 1s --json > orders.jsonl
      tandembus receive orders --follow
      tandembus receive orders --dead-letter --reason "cannot be parsed"
      tandembus receive orders --sub-queue dead-letter --max 10

    \b
    JSON: one message per line: {"sequence_number", "message_id", "body", "body_base64", "properties",
      "subject", "content_type", "correlation_id", "session_id", "to", "reply_to", "reply_to_session_id",
      "partition_key", "time_to_live_s", "state", "delivery_count", "enqueued_at", "scheduled_at",
      "locked_until", "lock_token", "dead_letter_reason", "dead_letter_description"}
    """
    action = _chosen([name.replace("_", "-") for name, is_chosen in actions.items() if is_chosen], mode, follow)
    if action != "dead-letter" and (reason or description):
        raise click.UsageError("--reason and --description go with --dead-letter.")
    settlement = Settlement(action, reason, description) if mode == ReceiveMode.PEEK_LOCK.value else None
    part = None if sub_queue is None else SubQueue(sub_queue)
    async with await connect(target.connection_string, ca_path=target.ca_path) as namespace:
        receiver = await namespace.receiver(queue, part, mode=ReceiveMode(mode))
        if limit is None and not follow:
            limit = 1
        wait_s = FOLLOW_WAIT_S if follow else wait_s
        received = await _receive(target, receiver, settlement, limit, wait_s, follow)
    if received == 0 and not target.as_json:
        say((f"no messages within {wait_s:g} s", "dim"))


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


async def _receive(
    target: Target, receiver: Receiver, settlement: Settlement | None, limit: int | None, wait_s: float, follow: bool
) -> int:
    """Until the limit is reached or, unless it follows, until there is nothing more right now."""
    received = 0
    given_back: set[int] = set()
    while limit is None or received < limit:
        wanted = BATCH if limit is None else min(BATCH, limit - received)
        messages = await receiver.receive(wanted, wait_s)
        again = [message for message in messages if message.sequence_number in given_back]
        if again:  # Everything there was has been given back once: more of it would only fill the dead letters.
            await receiver.release(*messages)
            break
        for message in messages:
            if target.as_json:
                print_json(message_record(message))
            else:
                print_message(message)
        if settlement is not None:
            await settlement.apply(receiver, messages)
            if settlement.action == "abandon":
                given_back.update(message.sequence_number for message in messages)
        received += len(messages)
        if len(messages) < wanted and not follow:
            break
    return received
