"""Nexmark's generator: proportions, sizes, references between the streams, and that a seed says all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.nexmark.events import BLOCK, SIZES, STATES, STREAMS, Events
from benchmarks.nexmark.generator import in_portions, write_files

EVENTS = 60_000


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    (found,) = in_portions(Events(EVENTS), 1)
    return found


@pytest.fixture
def con(tables: dict[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as found:
        for stream, table in tables.items():
            found.register(stream, table)
        yield found


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(tables: dict[str, pa.Table]) -> None:
    assert [len(tables[stream]) for stream in STREAMS] == [EVENTS // 50, EVENTS // 50 * 3, EVENTS // 50 * 46]
    for stream in ("person", "auction"):
        assert tables[stream]["id"].to_pylist() == list(range(1_000, 1_000 + len(tables[stream])))


@pytest.mark.parametrize("stream", STREAMS)
def test_rows_are_as_long_on_average_as_published(stream: str, tables: dict[str, pa.Table]) -> None:
    columns = [each for each in tables[stream].column_names if stream != "bid" or each not in ("channel", "url")]
    size = sum(
        pc.sum(pc.binary_length(tables[stream][each])).as_py() / len(tables[stream])
        if pa.types.is_string(tables[stream][each].type)
        else 8
        for each in columns
    )
    assert size == pytest.approx(SIZES[stream], rel=0.02)


@pytest.mark.parametrize(
    ("sql", "share"),
    [
        ("SELECT avg((auction % 100 = 0)::INT) FROM bid", 1 / 2),
        ("SELECT avg((bidder % 100 = 1)::INT) FROM bid", 3 / 4),
        ("SELECT avg((seller % 100 = 0)::INT) FROM auction", 3 / 4),
        ("SELECT avg((channel NOT LIKE 'channel-%')::INT) FROM bid", 1 / 2),
        ("SELECT avg((url LIKE '%&channel_id=%')::INT) FROM bid WHERE channel LIKE 'channel-%'", 9 / 10),
        ("SELECT avg((price < 10000)::INT) FROM bid", 1 / 3),
        ("SELECT avg((category = 10)::INT) FROM auction", 1 / 5),
    ],
)
def test_shares(sql: str, share: float, con: duckdb.DuckDBPyConnection) -> None:
    assert con.execute(sql).fetchall()[0][0] == pytest.approx(share, abs=0.03)


def test_values_are_those_that_are_published(con: duckdb.DuckDBPyConnection) -> None:
    assert con.execute("SELECT list_sort(list(DISTINCT state)) FROM person").fetchall() == [(list(STATES),)]
    assert con.execute("SELECT list_sort(list(DISTINCT category)) FROM auction").fetchall() == [([10, 11, 12, 13, 14],)]
    least, most = con.execute("SELECT min(price), max(price) FROM bid").fetchall()[0]
    assert 100 <= least < 200
    assert 50_000_000 < most <= 100_000_000
    assert con.execute("SELECT count(*) FROM auction WHERE reserve < initial_bid + 100").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("rows", "names", "newest"),
    [("bid", "auction", "auction"), ("bid", "bidder", "person"), ("auction", "seller", "person")],
)
def test_ids_are_those_of_rows_that_have_come_or_are_about_to(
    rows: str, names: str, newest: str, con: duckdb.DuckDBPyConnection
) -> None:
    sql = (
        f"SELECT min(r.{names} - n.id), max(r.{names} - n.id), min(r.{names}) FROM {rows} r "
        f"ASOF JOIN {newest} n ON r.date_time >= n.date_time"
    )
    oldest, ahead, first = con.execute(sql).fetchall()[0]
    assert first == 1_000
    assert 5 < ahead <= 10
    assert -1_000 <= oldest < (-90 if newest == "auction" else -900)


def test_auctions_last_on_average_until_a_hundred_have_come(con: duckdb.DuckDBPyConnection) -> None:
    sql = (
        "SELECT avg(epoch_ms(expires) - epoch_ms(date_time)), min(epoch_ms(expires) - epoch_ms(date_time)) FROM auction"
    )
    mean, least = con.execute(sql).fetchall()[0]
    assert mean == pytest.approx(100 * 50 / 3 / 10, rel=0.05)  # ten events a millisecond
    assert least >= 1


def test_a_seed_says_all() -> None:
    first, again = (next(in_portions(Events(2_000, seed=3), 1)) for _ in range(2))
    other = next(in_portions(Events(2_000, seed=4), 1))
    assert first == again
    assert first["bid"]["price"] != other["bid"]["price"]


def test_a_whole_block_is_the_same_however_many_events_follow() -> None:
    count = BLOCK + 5_000
    long = list(in_portions(Events(count), 3))
    short = list(in_portions(Events(count - 3_000), 7))
    for stream in STREAMS:
        all_rows = pa.concat_tables([each[stream] for each in long])
        fewer = pa.concat_tables([each[stream] for each in short])
        assert all_rows.slice(0, BLOCK // 50) == fewer.slice(0, BLOCK // 50)
        assert len(all_rows) == Events(count).block(0)[stream][1].num_rows + Events(count).block(1)[stream][1].num_rows


def test_the_disordered_variant_has_the_same_events_in_another_order() -> None:
    numbers = Events(3_000, disordered=True).numbers(0)
    assert list(numbers[:3]) == [0, 953, 906]
    assert sorted(numbers) == list(range(3_000))
    assert set(numbers[1_000:2_000]) == set(range(1_000, 2_000))
    (rows,) = in_portions(Events(3_000, disordered=True), 1)
    times = rows["bid"]["date_time"].cast(pa.int64()).to_numpy()
    assert np.any(np.diff(times) < 0)
    assert np.max(np.maximum.accumulate(times) - times) < 100_000  # a group is a tenth of a second


def test_file_n_of_all_streams_has_the_same_events(tmp_path: Path) -> None:
    folder = write_files(tmp_path, Events(5_000), 4)
    with duckdb.connect() as con:
        for stream in STREAMS:
            files = sorted((folder / stream).iterdir(), key=os.path.getmtime)
            assert [each.name for each in files] == [f"part-{number:05d}.parquet" for number in range(4)]
            spans = [
                con.execute(f"SELECT epoch_ms(min(date_time)), epoch_ms(max(date_time)) FROM '{file}'").fetchall()[0]
                for file in files
            ]
            start = 1_640_995_200_000
            for number, (first, last) in enumerate(spans):  # 1,250 events a file, ten in a millisecond
                assert start + number * 125 <= first <= last < start + (number + 1) * 125
    assert write_files(tmp_path, Events(5_000), 4) == folder
