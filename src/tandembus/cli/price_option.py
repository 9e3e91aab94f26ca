"""`--prices`: a price list of the package, or a file of the user's own."""

from __future__ import annotations

import click

from tandembus.errors import InvalidArgument
from tandembus.metering.price_files import load_prices
from tandembus.metering.prices import PriceList


def price_list(_: click.Context, __: click.Parameter, name_or_file: str | None) -> PriceList | None:
    """The callback of the option."""
    if name_or_file is None:
        return None
    try:
        return load_prices(name_or_file)
    except InvalidArgument as error:
        raise click.BadParameter(str(error)) from None
