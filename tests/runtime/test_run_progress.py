"""How much of a run is done: of its inputs, in words, and what is not known stays so."""

from __future__ import annotations

import pytest

from watersmeet.runtime.run_progress import InputProgress, RunProgress, Tasks, Unit, duration_text

HALF = InputProgress("o", Unit.BYTES, 3_000_000, 1_500_000)
MOST = InputProgress("p", Unit.RECORDS, 1000, 999)
NOTHING = InputProgress("q", Unit.BYTES, 0, 0)
UNKNOWN = InputProgress("r")


@pytest.mark.parametrize(
    ("run", "fraction", "text"),
    [
        (
            RunProgress(inputs=(MOST, HALF), remaining=59.6),
            0.5,
            "50% done, about 1 min 0 s left: p 999 of 1,000 records, o 1.5 MB of 3 MB",
        ),
        (RunProgress(inputs=(MOST,), remaining=0.4), 0.999, "99% done: p 999 of 1,000 records"),
        (RunProgress(inputs=(MOST, NOTHING)), 0.999, "99% done: p 999 of 1,000 records"),
        (RunProgress(inputs=(NOTHING,)), 1.0, "100% done"),
        (
            RunProgress(inputs=(HALF, UNKNOWN)),
            None,
            "how much is done is not known: o 1.5 MB of 3 MB, r not known",
        ),
        (RunProgress(inputs=()), None, "how much is done is not known"),
        (
            RunProgress(inputs=(UNKNOWN,), tasks=Tasks(3, 8)),
            0.375,
            "37% done: 3 of 8 tasks of the one batch, r not known",
        ),
        (RunProgress(inputs=(), tasks=Tasks(0, 0)), 0.0, "0% done: 0 of 0 tasks of the one batch"),
        (RunProgress(inputs=(UNKNOWN,), is_over=True), 1.0, "100% done: r not known"),
    ],
)
def test_a_run_is_done_as_far_as_its_last_input(run: RunProgress, fraction: float | None, text: str) -> None:
    assert (run.fraction, run.text) == (fraction, text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.6, "1 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (605, "10 min"), (3590, "60 min"), (7325, "2 h 2 min")],
)
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
