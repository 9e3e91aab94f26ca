"""A catalog's records in memory, for tests: whole documents, as the durable store gives them back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import final

from tandembus.store.embedded.catalog_store import DamagedRecord, Document


@final
class MemoryRecords:
    def __init__(self) -> None:
        self._texts: dict[bytes, str] = {}
        """As text: nobody may change a document by changing the object that was put."""

    def read_all(self) -> tuple[dict[bytes, Document], list[DamagedRecord]]:
        return {key: json.loads(text) for key, text in self._texts.items()}, []

    def commit(self, puts: Mapping[bytes, Document], drops: Iterable[bytes] = ()) -> None:
        for key in drops:
            self._texts.pop(key, None)
        self._texts.update({key: json.dumps(document) for key, document in puts.items()})

    def reopen(self) -> None:
        """Nothing is ever closed."""

    def close(self) -> None:
        """What was kept goes with the object."""
