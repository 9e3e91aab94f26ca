"""A browser and a namespace for each file of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, StorageState, expect, sync_playwright

from tests.dashboard.screens import SHOWS_WITHIN_MS, Screen, screen
from tests.dashboard.stage import Stage
from tests.integration.browser import find_chromium
from tests.integration.serving import RunningNamespace, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: as long as it is there an event loop runs in this thread, and asyncio's tests need
    one of their own."""
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium on this machine")
    expect.set_options(timeout=SHOWS_WITHIN_MS)
    with sync_playwright() as playwright:
        # As root, and in containers, there is no sandbox to be had.
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def namespace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNamespace]:
    folder: Path = tmp_path_factory.mktemp("namespace")
    with serving(folder, "--name", "contoso") as running:
        yield running


@pytest.fixture(scope="module")
def stage(namespace: RunningNamespace) -> Stage:
    return Stage(namespace)


@pytest.fixture(scope="module")
def signed_in(browser: Browser, namespace: RunningNamespace) -> StorageState:
    """What a browser keeps of somebody who may do everything."""
    with screen(browser, namespace) as one:
        one.sign_in(namespace.connection_string)
        return one.page.context.storage_state()


@pytest.fixture
def shown(browser: Browser, namespace: RunningNamespace, signed_in: StorageState) -> Iterator[Screen]:
    """A browser of the test's own, signed in with everything allowed."""
    with screen(browser, namespace, kept=signed_in) as one:
        one.open()
        yield one
