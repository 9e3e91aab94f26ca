"""How much a test of the fault matrix does: little on every commit, more at night, most before a release."""

import os

SCALES = ("ci", "nightly", "release")


def scaled(ci: int, nightly: int, release: int) -> int:
    """The volume for the scale in force, which `make chaos SCALE=...` sets."""
    scale = os.environ.get("SCALE", "ci")
    if scale not in SCALES:
        raise ValueError(f"SCALE is {scale!r}: it must be one of {', '.join(SCALES)}")
    return (ci, nightly, release)[SCALES.index(scale)]
