"""What a store and its fragments have done since the process began: for whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from tandembus.broker.figures import FragmentFigures, Holding
from tandembus.broker.fragment import Fragment
from tandembus.prometheus import Histogram
from tandembus.store.messaging_store import CommitCost, Place

OPERATION_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@final
class StoreFigures:
    """Touched once per commit, never per message."""

    def __init__(self) -> None:
        self.by_key: dict[int, FragmentFigures] = {}
        """Of every fragment that was open at some time, or looked at."""
        self.commit_s = Histogram()
        self.sync_s = Histogram()
        self.operations = Histogram(OPERATION_BOUNDS)
        self.written_bytes = 0
        self.on_dropped: Callable[[FragmentFigures], None] = _nothing

    def of(self, key: int) -> FragmentFigures:
        found = self.by_key.get(key)
        if found is None:
            found = self.by_key[key] = FragmentFigures(key)
        found.held = None
        return found

    def found(self, key: int, held: Holding, oldest: Place, oldest_enqueued_at: int) -> None:
        """In the store, of a fragment that nobody has opened. If somebody has meanwhile, that one knows better."""
        if key not in self.by_key:
            figures = self.by_key[key] = FragmentFigures(key)
            figures.held = held
            figures.body_fragment = oldest.fragment
            figures.oldest_number = oldest.number
            figures.oldest_enqueued_at = oldest_enqueued_at

    def drop(self, key: int) -> None:
        """The entity is gone."""
        dropped = self.by_key.pop(key, None)
        if dropped is not None:
            self.on_dropped(dropped)

    def committed(self, commit_s: float, cost: CommitCost) -> None:
        self.commit_s.observe(commit_s)
        self.sync_s.observe(cost.sync_s)
        self.written_bytes += cost.put_bytes

    def answered(self, fragments: Sequence[Fragment]) -> None:
        """A commit of these is durable, and about to be answered."""
        count = 0
        for fragment in fragments:
            staged = fragment.staged
            count += len(staged.committing_sends) + len(staged.committing_locks) + len(staged.committing_removals)
        self.operations.observe(count)


def _nothing(_figures: FragmentFigures) -> None:
    return
