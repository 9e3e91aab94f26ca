"""Sums of money for people."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

NOT_PRICED: Final = "not priced"


def money(amount: Decimal | None) -> str:
    """Small sums are what bills of this kind are about: they keep their digits."""
    if amount is None:
        return NOT_PRICED
    if amount == 0 or abs(amount) >= 1:
        return f"{amount + 0:,.2f}"
    return f"{round(amount, 4) + 0:.4f}"
