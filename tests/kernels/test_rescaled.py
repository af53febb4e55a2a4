"""Keys of all kinds are found again in stored rows when the number of buckets changes."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from tests.kernels.test_shared_stores import created
from tests.support.rescaled import RescaledHarness
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.sql.parse import parse
from watersmeet.sql.statements import StatementSet
from watersmeet.testing.harness import Harness, load_script
from watersmeet.testing.rig import StepInput

END = [Event(EventKind.END)]
STREAMS = """
CREATE STREAM a (i INT, n BIGINT, s STRING, d DOUBLE, m DECIMAL(30, 2), ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (event_time_unit = 's');
CREATE STREAM b (i BIGINT, s STRING, d DOUBLE, m DECIMAL(28, 0), ts BIGINT, WATERMARK FOR ts AS ts)
  WITH (event_time_unit = 's');
CREATE STREAM c (i INT, s STRING, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE MUTABLE STREAM u (k INT, ts BIGINT, v INT) PRIMARY KEY (k, ts) WITH (event_time_unit = 's');
"""
WITHIN = "WITHIN INTERVAL '8' SECONDS"
QUERIES = [
    f"SELECT a.i, b.s FROM a LEFT JOIN b ON a.i = b.i AND lower(a.s) = upper(b.s) {WITHIN}",
    f"SELECT a.i, b.s FROM a FULL JOIN b ON a.d = b.d {WITHIN}",
    f"SELECT a.i, b.s FROM a LEFT JOIN b ON a.m = b.m AND a.n <=> b.i {WITHIN}",
    (
        f"SELECT a.i, b.s, c.s FROM a LEFT JOIN b ON a.i = b.i LEFT JOIN c ON c.s = b.s AND c.i = a.i {WITHIN}"
        " EMIT CHANGELOG"
    ),
    f"SELECT b.s, a.d, count() FROM a LEFT JOIN b ON a.i = b.i {WITHIN} GROUP BY b.s, a.d",
    "SELECT a.i % 3, lower(a.s), sum(a.n) FROM a GROUP BY a.i % 3, lower(a.s)",
    "SELECT k, ts, v FROM u",
    "SELECT a.i, u.v FROM a JOIN u ON a.i = u.k",
    f"SELECT a.i, b.s FROM a JOIN b ON a.i = b.i {WITHIN} SETTINGS eviction = 'lru', join_max_buffered_bytes = 100000",
    f"SELECT a.s, b.s FROM a JOIN b ON a.i < b.i {WITHIN}",
]


def rows(number: int) -> dict[str, StepInput]:
    """Rows of a step; some keys are NULL, and zeros have both signs."""
    at = 3 * number
    texts = ("x", "y", None, "z")
    a = [
        (k % 5, k % 4, texts[(k + number) % 4], (-0.0, 0.0, 1.5)[k % 3], Decimal(10**20 + k % 4), at + k % 3)
        for k in range(8)
    ]
    b = [(k % 6, texts[k % 4], (0.0, 1.5)[k % 2], Decimal(10**20 + k % 3), at + k % 2) for k in range(6)]
    c = [(k % 5, texts[k % 4], at) for k in range(5)]
    u = [(k % 4, at - 3 * (k % 2), 10 * number + k) for k in range(5)]
    return {"a": StepInput(a), "b": StepInput(b), "c": StepInput(c), "u": StepInput(u)}


def outcomes(harness: Harness, read: Sequence[str]) -> list[list[str]]:
    """What each query gives in each step, restarting before each but the first."""
    found = []
    for number in range(6):
        if number:
            harness.restart()
        inputs = {name: each for name, each in rows(number).items() if name in read}
        steps = harness.step_all(inputs, END if number == 5 else ())
        found.append([repr(sorted(step.changes, key=repr)) for step in steps])
    return found


@pytest.mark.sample(6)
@pytest.mark.parametrize("query", QUERIES)
def test_keys_are_hashed_again_as_they_were(query: str) -> None:
    streams, text = load_script(f"{STREAMS} {query};")
    read = [name for name in "abcu" if Harness(streams, text).inputs_of(name)]
    undisturbed = outcomes(Harness(streams, text), read)
    assert outcomes(RescaledHarness(streams, text), read) == undisturbed
    assert any("(" in step for steps in undisturbed for step in steps)


def test_stores_of_queries_that_take_other_rows_of_them() -> None:
    """The first query computes its key for its own rows only, and so does the second."""
    streams, _ = load_script(f"{created((0, 0))} SELECT * FROM s0;")
    join = "JOIN s1 b ON a.k % 4 = b.k % 4 WITHIN INTERVAL '20' SECONDS"
    queries = [f"SELECT a.v, b.v AS w FROM s0 a {join} WHERE a.v {sign} 5" for sign in ("<", ">=")]
    inserts = "".join(f"INSERT INTO t{number} {each};" for number, each in enumerate(queries))
    (together,) = parse(f"EXECUTE STATEMENT SET BEGIN {inserts} END;")
    assert isinstance(together, StatementSet)

    def given(harness: Harness) -> list[list[Any]]:
        found = []
        for number in range(5):
            if number:
                harness.restart()
            fed = StepInput([(number + k, (3 * k + number) % 10, 4 * number) for k in range(9)])
            found.append([sorted(step.changes) for step in harness.step_all({"s0": fed, "s1": fed})])
        return found

    undisturbed = given(Harness(streams, together))
    assert given(RescaledHarness(streams, together)) == undisturbed
    assert all(changes for changes in undisturbed[-1])
