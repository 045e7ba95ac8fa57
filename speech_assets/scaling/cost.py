"""What an hour of one stream costs, from the price of a device, its streams and their use.

    cost of a stream-hour = price of a device-hour / (streams of a device x utilisation)

A stream-hour is an hour in which one stream is in use. Prices are in whatever money is given.
"""

from __future__ import annotations

import math


def cost_per_stream_hour(price_per_hour: float, streams: float, utilisation: float) -> float:
    """Cost of an hour of one stream in use.

    `streams` are those that a device holds, `utilisation` the share of them in use, mean over all
    hours that are paid.

    Raises:
        ValueError: a price or a number of streams that is not above 0, or a utilisation that is no
            share.
    """
    for what, value in (("price", price_per_hour), ("streams", streams)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{what} is {value:g}; it must be above 0")
    if not 0 < utilisation <= 1:
        raise ValueError(f"utilisation is {utilisation:g}; it must be above 0 and at most 1")
    return price_per_hour / (streams * utilisation)


def breakeven_utilisation(
    price_per_hour: float, streams: float, bought_per_stream_hour: float
) -> float:
    """Utilisation from which own devices cost less than stream-hours that are bought.

    The one at which `cost_per_stream_hour` is the bought one's price; above 1 there is none.
    """
    return cost_per_stream_hour(price_per_hour, streams, 1.0) / bought_per_stream_hour


def breakeven_price(streams: float, utilisation: float, bought_per_stream_hour: float) -> float:
    """The price of a device-hour at which its stream-hours cost what bought ones do."""
    return bought_per_stream_hour * streams * utilisation
