"""What a process of the namespace asks of Python while it loads."""

from __future__ import annotations

import gc
import os
import ssl

import pytest

from tandembus.node.tuning import AUTHORITIES, loading


@pytest.mark.parametrize("before", [None, "some-authorities.pem"])
def test_no_authorities_are_read_while_a_process_loads_and_it_knows_of_them_afterwards(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv(AUTHORITIES, raising=False)
    else:
        monkeypatch.setenv(AUTHORITIES, before)
    with loading():
        assert ssl.create_default_context().cert_store_stats()["x509"] == 0
    assert os.environ.get(AUTHORITIES) == before


def test_no_garbage_is_looked_for_while_a_process_loads() -> None:
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.unfreeze()
