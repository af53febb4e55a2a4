"""Versions of Delta tables that a query leaves out: counted from what Spark reports of its sources, and told once."""

from __future__ import annotations

import json
import logging

import pytest

from watersmeet.runtime.skipped_versions import SkippedVersions


def test_what_is_left_out_is_told_when_it_grows(caplog: pytest.LogCaptureFixture) -> None:
    skipped = SkippedVersions("q")

    def report(*offsets: object) -> None:
        skipped.take({"sources": [{"endOffset": offset} for offset in offsets]})

    with caplog.at_level(logging.WARNING):
        report(None, "no JSON", 7, {"topic": {"0": 3}}, {"stream": "a", "skipped": 0})
        assert skipped.counters == {}
        for count in (1, 1, 3):
            report(json.dumps({"stream": "a", "skipped": count}), {"stream": "b", "skipped": 0})
    assert skipped.counters == {"a.skipped_versions": 3}
    assert [record.getMessage().rpartition("(")[2] for record in caplog.records] == ["1 so far)", "3 so far)"]
