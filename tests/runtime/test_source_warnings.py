"""Warnings of sources, which stand in Spark's progress, are logged once."""

from __future__ import annotations

import json
import logging

import pytest

from watersmeet.runtime.source_warnings import SourceWarnings


def test_each_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    warnings = SourceWarnings("q")
    texts = [json.dumps({"warnings": "b\nc"}), "no JSON", "7"]
    kinds = [{"pieces": 1, "warnings": "a\nb"}, {"warnings": ""}, *texts, None]
    for _ in range(2):
        warnings.take({"sources": [{"latestOffset": each} for each in kinds]})
    warnings.take({})
    assert [record.getMessage() for record in caplog.records] == ["q: a", "q: b", "q: c"]
