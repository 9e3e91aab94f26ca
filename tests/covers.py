"""Ties a test to the requirements that it shows; `docs/requirements.md` is checked against these marks."""

import pytest


def covers(*ids: str) -> pytest.MarkDecorator:
    """Mark a test (or a class of tests) as showing the requirements `ids`, such as "M2" or "F12"."""
    return pytest.mark.covers(*ids)
