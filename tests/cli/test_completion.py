"""What a shell completes: commands, options, and the names of queries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def completed(folder: Path, *words: str) -> list[str]:
    """What bash would offer for the last word."""
    environment = {
        **os.environ,
        "_WATERSMEET_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("watersmeet", *words)),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-c", "from watersmeet.cli.main import app; app(prog_name='watersmeet')"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ".watersmeet/queries/enriched", ".watersmeet/queries/totals", "other/queries/else", "job/alone":
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "plan.json").touch()
    (tmp_path / ".watersmeet/queries/no_query").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("st",), ["state"]),
        (("state", ""), ["enriched", "totals"]),
        (("state", "en"), ["enriched"]),
        (("state", "-w", "other", ""), ["else"]),
        (("state", "-w", "nowhere", ""), []),
        (("state", "-w", "s3a://bucket/w", ""), []),
        (("checkpoint", "copy", "--checkpoint", "job", ""), ["alone"]),
        (("rescale", "job.sql", "--query", "to"), ["totals"]),
        (("replace", "job.sql", "--query", "to"), ["totals"]),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_names(folder: Path, words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(folder, *words) == expected
