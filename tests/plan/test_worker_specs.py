"""What the workers are told."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from watersmeet.runtime.plan_file import describe
from watersmeet.testing.harness import Harness, load_script

FINGERPRINTS = """
from watersmeet.testing.harness import Harness, load_script
streams = "".join(
    f"CREATE STREAM {name} (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');" for name in "abcd"
)
sql = (
    "SELECT x.k FROM (SELECT a.k, a.ts FROM a LEFT JOIN b ON a.k = b.k WITHIN INTERVAL '1' SECOND) x "
    "JOIN (SELECT c.k, c.ts FROM c LEFT JOIN d ON c.k = d.k WITHIN INTERVAL '1' SECOND) y ON x.k = y.k "
    "WITHIN INTERVAL '1' SECOND EMIT CHANGELOG"
)
print([spec.fingerprint for spec in Harness(*load_script(streams + sql))._operators])
"""


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_every_process() -> None:
    """A query resumes in a process whose hashes of strings, and so the order of sets, are others."""
    found = [
        subprocess.run(
            [sys.executable, "-c", FINGERPRINTS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0].count("'") == 6
    assert found[0] == found[1]


def test_an_index_may_come_and_go_between_two_runs() -> None:
    """State fits with any index: it changes how rows are sought, not what is kept."""
    table = (
        "CREATE STREAM e (city STRING, ts BIGINT); "
        "CREATE STREAM u (uid INT, city STRING, ts BIGINT) PRIMARY KEY (uid) SETTINGS mode = 'versioned_kv'; "
    )
    query = "SELECT u.uid FROM e JOIN u FOR SYSTEM_TIME AS OF e.ts ON e.city = u.city"
    scripts = (table + query, f"{table}CREATE INDEX i ON u (city); {query}")
    without, indexed = (Harness(*load_script(script))._operators[0] for script in scripts)
    assert without.kernel != indexed.kernel
    assert without.fingerprint == indexed.fingerprint
    assert describe(without) == describe(indexed)


def test_what_or_combines_with_exists_is_noted_of_the_joins_that_have_it_alone() -> None:
    """A checkpoint of a join without it fits as it did before there was such a thing."""
    streams = "".join(
        f"CREATE STREAM {name} (k INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');"
        for name in "ab"
    )
    test = "EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.ts BETWEEN a.ts AND a.ts + 5)"
    without, one, other = (
        Harness(*load_script(f"{streams}SELECT a.k FROM a WHERE {terms}{test}"))._operators[0]
        for terms in ("", "a.k = 1 OR ", "a.k IS NULL OR ")
    )
    assert without.fingerprint == "668b351743739088"
    assert "alternative" not in f"{describe(without)} {without.kernel}"
    assert describe(one)["IntervalJoin alternative"] == repr('(l."a:$e0")')
    assert len({each.fingerprint for each in (without, one, other)}) == 3
