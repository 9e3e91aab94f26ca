"""A raw connection that makes transactions."""

from __future__ import annotations

from tandembus.amqp.encoding import descriptors as codes
from tandembus.amqp.encoding.frames import AMQP_FRAME, frame
from tandembus.amqp.encoding.transactions import declare_message, discharge_message
from tandembus.amqp.encoding.values import Array, Described, uint, ulong
from tests.integration.raw_amqp import Frame, RawAmqp, source_of, state_of

CONTROL = 9
COORDINATOR = Described(ulong(codes.COORDINATOR), [Array(0xA3, ["amqp:local-transactions"])])


class Transacting:
    """A raw connection with a control link. Delivery ids are counted over all links of the session."""

    def __init__(self, raw: RawAmqp) -> None:
        self.raw = raw
        self._next_id = 0
        raw.attach(CONTROL, False, source_of("mine"), COORDINATOR)
        assert raw.expect(codes.ATTACH).described(6)[0] == codes.COORDINATOR

    def transfer(self, handle: int, payload: bytes, txn_id: bytes | None = None, pieces: int = 1) -> Frame:
        """Returns the disposition. Of several frames, only the first has the transaction's id."""
        delivery_id = self._next_id
        self._next_id += 1
        size = -(-len(payload) // pieces)
        for at in range(pieces):
            is_first, more = at == 0, at < pieces - 1
            fields: list[object] = [uint(handle), uint(delivery_id), b"tag", uint(0), False, more, None]
            if is_first and txn_id is not None:
                fields.append(state_of(codes.TRANSACTIONAL_STATE, txn_id))
            self.raw.send(frame(AMQP_FRAME, 0, codes.TRANSFER, fields, payload[at * size : (at + 1) * size]))
        answer = self.raw.expect(codes.DISPOSITION)
        assert (answer[0], answer.plain(1), answer[3]) == (True, delivery_id, True)
        return answer

    def declare(self) -> bytes:
        code, (txn_id,) = self.transfer(CONTROL, declare_message()).described(4)
        assert code == codes.DECLARED
        assert isinstance(txn_id, bytes)
        return txn_id

    def discharge(self, txn_id: bytes, fail: bool = False) -> Frame:
        return self.transfer(CONTROL, discharge_message(txn_id, fail))

    def commit(self, txn_id: bytes) -> None:
        assert self.discharge(txn_id).described(4)[0] == codes.ACCEPTED
