"""Traffic for those who wait for its answers: management requests and HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tandembus.broker.locks import CallbackSettleReply, MessageLock
from tandembus.broker.operations import CallbackSendReply, SendOperation
from tandembus.broker.transactions import CallbackTransactionReply, TransactionOperation, TransactionSettlement
from tandembus.errors import BusError
from tandembus.interconnect.traffic import Traffic


async def settle_all(traffic: Traffic, locks: Sequence[MessageLock], settlement: int) -> None:
    """Settle these locks, and return when that is durable for all of them. All are live when this is called."""
    if not locks:
        return
    waiting = len(locks)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(_lock: MessageLock, error: BusError | None) -> None:
        nonlocal waiting
        waiting -= 1
        if error is not None or waiting == 0:
            tell(done, error)

    reply = CallbackSettleReply(settled)
    for lock in locks:
        traffic.settle(lock, settlement, reply)
    await done


async def move_in_one_commit(traffic: Traffic, send: SendOperation, lock: MessageLock, settlement: int) -> None:
    """A message is sent and another one settled, in the same fragment: both or nothing."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reply = CallbackTransactionReply(lambda _operation, error: tell(done, error))
    operation = TransactionOperation([send], [TransactionSettlement(lock, settlement)], reply)
    operation.index = lock.index
    traffic.discharge(operation)
    await done


def unanswered() -> CallbackSendReply:
    """For a send that is answered together with others."""
    return CallbackSendReply(_ignore)


def _ignore(_operation: SendOperation, _error: BusError | None) -> None:
    return


def tell(done: asyncio.Future[None], error: BusError | None) -> None:
    """The answer is there; whoever waited for it may have gone."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
