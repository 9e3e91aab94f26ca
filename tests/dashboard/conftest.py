"""One browser for all of these tests, and a namespace for each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.dashboard.screens import SHOWS_WITHIN_MS, Screen, screen
from tests.integration.browser import find_chromium
from tests.integration.serving import RunningNamespace, serving


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
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


@pytest.fixture
def shown(browser: Browser, namespace: RunningNamespace) -> Iterator[Screen]:
    """Signed in with everything allowed."""
    with screen(browser, namespace) as one:
        one.sign_in(namespace.connection_string)
        yield one
