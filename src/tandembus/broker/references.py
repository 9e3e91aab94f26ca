"""How many subscriptions still have each number of a topic: two bytes for each number, block by block."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8


@final
class References:
    def __init__(self, block_size: i64) -> None:
        self._block_size: i64 = block_size
        self._by_block: dict[int, BytesWriter] = {}

    def of(self, number: i64) -> i64:
        counts = self._by_block.get(int(number // self._block_size))
        if counts is None:
            return 0
        at = (number % self._block_size) * 2
        return (i64(counts[at]) << 8) | i64(counts[at + 1])

    def set(self, number: i64, count: i64) -> None:
        index = number // self._block_size
        counts = self._by_block.get(int(index))
        if counts is None:
            counts = BytesWriter()
            counts.write(bytes(int(self._block_size) * 2))
            self._by_block[int(index)] = counts
        at = (number % self._block_size) * 2
        counts[at] = u8((count >> 8) & 255)
        counts[at + 1] = u8(count & 255)

    def drop_block(self, index: i64) -> None:
        self._by_block.pop(int(index), None)
