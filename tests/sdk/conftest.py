"""The fixtures and shapes of tests/integration, for tests through the SDKs."""

from tests.integration.conftest import *  # noqa: F403
