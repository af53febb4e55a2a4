"""A corrected ASOF join takes back the result that stands, and none that it has taken back before."""

from __future__ import annotations

import pytest

from tests.kernels.test_streamed_results import stream_all
from watersmeet.testing.harness import Harness, StepInput, load_script

SCRIPT = """
CREATE STREAM l (k INT, a INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '900' SECONDS)
    WITH (event_time_unit = 's');
CREATE STREAM r (k INT, b INT, ts BIGINT, WATERMARK FOR ts AS ts - INTERVAL '900' SECONDS)
    WITH (event_time_unit = 's');
SELECT l.a, r.b FROM l ASOF JOIN r MATCH_CONDITION (l.ts >= r.ts) ON l.k = r.k EMIT CHANGELOG;
"""


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_result_that_is_revised_again_and_again(in_pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_pieces:  # one version may revise any number of results
        stream_all(monkeypatch)
    harness = Harness(*load_script(SCRIPT), buckets=1)
    assert harness.step({"l": StepInput([(1, 1, 10)])}).changes == []
    assert harness.step({"r": StepInput([(1, 1, 1)])}).changes == [(1, (1, 1))]
    for newer in (2, 3, 4):
        changes = harness.step({"r": StepInput([(1, newer, newer)])}).changes
        assert sorted(changes) == [(-1, (1, newer - 1)), (1, (1, newer))]
        harness.restart()
