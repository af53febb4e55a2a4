"""Nexmark's events: people, auctions and bids, as Arrow tables, by seed.

Of 50 events the first is a person, the next three are auctions, the others bids.  Events of a block are generated at
once, from the seed and the block's number, so a whole block is the same however many events follow.

What differs from the reference's generator: it has no seed; its times are whole milliseconds of the clock, ours begin
at a fixed time; it adds 1,000 to a bidder's id twice, so that a bidder is a person who comes much later or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

import numpy as np
import pyarrow as pa

from benchmarks.nexmark.texts import Texts

Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

STREAMS = ("person", "auction", "bid")
PERSONS, AUCTIONS, BIDS = 1, 3, 46
CYCLE = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1_000
#: Events of a group come in another order, in the disordered variant; a block is a whole number of groups.
GROUP, STRIDE = 1_000, 953
BLOCK = 50_000
IN_FLIGHT = 100
ACTIVE = 1_000
#: So many auctions and people may be named before they come.
LEAD = 10
HUNDRED = 100
HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS = 2, 4, 4
SIZES = {"person": 200, "auction": 500, "bid": 100}
FIRST_CATEGORY, CATEGORIES = 10, 5
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Events:
    """``count`` events, ``rate`` of them in a second of event time, from ``start`` on."""

    count: int
    seed: int = 7
    disordered: bool = False
    rate: float = 10_000.0
    start: datetime = datetime(2022, 1, 1, tzinfo=UTC)

    def numbers(self, block: int) -> Numbers:
        """The events' numbers, in the order in which they come."""
        places = np.arange(block * BLOCK, min((block + 1) * BLOCK, self.count), dtype=np.int64)
        if not self.disordered:
            return places
        return places // GROUP * GROUP + places * STRIDE % GROUP

    def millis(self, numbers: Numbers) -> Numbers:
        """The event times of events, in whole milliseconds."""
        first = round(self.start.timestamp() * 1000)
        return first + (numbers * (1000.0 / self.rate)).astype(np.int64)

    def block(self, block: int) -> dict[str, tuple[Numbers, pa.Table]]:
        """The rows of a block by stream, with the place of each among all events."""
        numbers = self.numbers(block)
        phase = numbers % CYCLE
        texts = Texts(np.random.default_rng([self.seed, block]))
        found = {}
        for stream, rows in (("person", _persons), ("auction", _auctions), ("bid", _bids)):
            chosen = _chosen(stream, phase)
            own = numbers[chosen]
            table = rows(own, self, texts)
            found[stream] = (block * BLOCK + np.flatnonzero(chosen), table)
        return found


def _chosen(stream: str, phase: Numbers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    match stream:
        case "person":
            return phase < PERSONS
        case "auction":
            return (phase >= PERSONS) & (phase < PERSONS + AUCTIONS)
        case _:
            return phase >= PERSONS + AUCTIONS


def last_person(numbers: Numbers) -> Numbers:
    """The newest person when each event comes, counted from 0."""
    return numbers // CYCLE * PERSONS + np.minimum(numbers % CYCLE, PERSONS - 1)


def last_auction(numbers: Numbers) -> Numbers:
    """The newest auction when each event comes, counted from 0; -1 before the first."""
    return numbers // CYCLE * AUCTIONS + np.minimum(numbers % CYCLE - PERSONS, AUCTIONS - 1)


def _persons(numbers: Numbers, events: Events, texts: Texts) -> pa.Table:
    count = len(numbers)
    columns = {
        "id": pa.array(last_person(numbers) + FIRST_ID),
        "name": texts.joined(" ", texts.chosen(FIRST_NAMES, count), texts.chosen(LAST_NAMES, count)),
        "email_address": texts.joined("", texts.words(7, count), "@", texts.words(5, count), ".com"),
        "credit_card": texts.joined(" ", *(texts.digits(4, count) for _ in range(4))),
        "city": texts.chosen(CITIES, count),
        "state": texts.chosen(STATES, count),
        "date_time": _times(events.millis(numbers)),
    }
    return _filled("person", columns, texts)


def _auctions(numbers: Numbers, events: Events, texts: Texts) -> pa.Table:
    count, rng = len(numbers), texts.rng
    first = prices(count, rng)
    times = events.millis(numbers)
    # on average an auction is open for as long as it takes until a hundred others have come
    horizon = events.millis(numbers + IN_FLIGHT * CYCLE // AUCTIONS) - times
    columns = {
        "id": pa.array(last_auction(numbers) + FIRST_ID),
        "item_name": texts.words(20, count),
        "description": texts.words(100, count),
        "initial_bid": pa.array(first),
        "reserve": pa.array(first + prices(count, rng)),
        "date_time": _times(times),
        "expires": _times(times + 1 + _below(np.maximum(2 * horizon, 1), rng)),
        "seller": pa.array(_people(numbers, HOT_SELLERS, 0, rng)),
        "category": pa.array(FIRST_CATEGORY + rng.integers(0, CATEGORIES, count)),
    }
    return _filled("auction", columns, texts)


def _bids(numbers: Numbers, events: Events, texts: Texts) -> pa.Table:
    count, rng = len(numbers), texts.rng
    newest = last_auction(numbers)
    oldest = np.maximum(newest - IN_FLIGHT, 0)
    usual = oldest + _below(newest - oldest + 1 + LEAD, rng)
    hot = rng.integers(0, HOT_AUCTIONS, count) > 0
    of_hot = rng.integers(0, len(HOT_CHANNELS), count)
    channel = np.where(rng.random(count) < 0.5, of_hot, len(HOT_CHANNELS) + rng.integers(0, CHANNELS, count))
    names, urls = _channels(events.seed)
    columns = {
        "auction": pa.array(np.where(hot, newest // HUNDRED * HUNDRED, usual) + FIRST_ID),
        "bidder": pa.array(_people(numbers, HOT_BIDDERS, 1, rng)),
        "price": pa.array(prices(count, rng)),
        "channel": names.take(pa.array(channel)),
        "url": urls.take(pa.array(channel)),
        "date_time": _times(events.millis(numbers)),
    }
    return _filled("bid", columns, texts)


def _people(numbers: Numbers, ratio: int, place: int, rng: np.random.Generator) -> Numbers:
    """Ids of people: a hot one, that at a place among each hundred, for all but one of ``ratio`` events."""
    newest = last_person(numbers)
    active = np.minimum(newest + 1, ACTIVE)
    usual = newest + 1 - active + _below(active + LEAD, rng)
    hot = rng.integers(0, ratio, len(numbers)) > 0
    chosen: Numbers = np.where(hot, newest // HUNDRED * HUNDRED + place, usual) + FIRST_ID
    return chosen


def prices(count: int, rng: np.random.Generator) -> Numbers:
    """Prices from 100 to a hundred million, as many between 100 and 1,000 as between 1,000 and 10,000, and so on."""
    return np.round(10.0 ** (rng.random(count) * 6) * 100).astype(np.int64)


def _below(limits: Numbers, rng: np.random.Generator) -> Numbers:
    return rng.integers(0, limits, dtype=np.int64)


def _times(millis: Numbers) -> pa.Array:
    return pa.array(millis * 1000).cast(_TIME)


def _filled(stream: str, columns: Mapping[str, pa.Array], texts: Texts) -> pa.Table:
    """The table with a column of letters that makes its rows as long as they are on average.

    As in the reference, a number counts as 8 bytes, and the channel and the URL of a bid do not count.
    """
    counted = [name for name in columns if stream != "bid" or name not in ("channel", "url")]
    sizes = np.sum([texts.sizes(columns[name]) for name in counted], axis=0)
    return pa.table({**columns, "extra": texts.filler(SIZES[stream] - sizes)})


@cache
def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """The names of channels, and the URL of each: hot ones, then ten thousand, of which nine in ten have a number."""
    rng = np.random.default_rng([seed, CHANNELS, CHANNELS])
    texts = Texts(rng)
    count = len(HOT_CHANNELS) + CHANNELS
    names = pa.array([*HOT_CHANNELS, *(f"channel-{number}" for number in range(CHANNELS))])
    folders = [texts.words(5, count, special="_") for _ in range(3)]
    ids = [f"&channel_id={number * 2_654_435_761 % 2**31}" for number in range(CHANNELS)]
    shown = rng.integers(0, 10, CHANNELS) > 0
    endings = pa.array([""] * len(HOT_CHANNELS) + [each if has else "" for each, has in zip(ids, shown, strict=True)])
    base = texts.joined("/", "https://www.nexmark.com", *folders, "item.htm?query=1")
    return names, texts.joined("", base, endings)
