"""Sums of money for people."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

NOT_PRICED: Final = "not priced"


def money(amount: Decimal | None) -> str:
    """Small sums are what bills of this kind are about: they keep their digits."""
    if amount is None:
        return NOT_PRICED
    return f"{abs(amount):,.2f}" if amount == 0 else f"{amount:,.2f}" if abs(amount) >= 1 else f"{amount:.4f}"
