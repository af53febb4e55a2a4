"""Rows that workers send to the driver: in order, once, and with the error of what takes them."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.runtime.real_time import mailbox
from watersmeet.runtime.real_time.mailbox import Mailbox, MailboxReader


@pytest.fixture(autouse=True)
def one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "task_number", lambda: 0)


def rows(number: int) -> pa.Table:
    return pa.table({"a": [number]})


def test_messages_come_once_and_in_order(tmp_path: Path) -> None:
    box, taken = Mailbox(str(tmp_path)), list[int]()
    for number in range(3):
        box.post(rows(number))
    reader = MailboxReader(box, lambda table: taken.extend(table["a"].to_pylist()))
    deadline = time.monotonic() + 10
    while len(taken) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    box.post(rows(3))
    reader.close()  # takes what is left
    assert taken == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_taker_is_raised_at_the_end(tmp_path: Path) -> None:
    def broken(_: pa.Table) -> None:
        raise ValueError("the terminal is gone")

    box = Mailbox(str(tmp_path))
    reader = MailboxReader(box, broken)
    box.post(rows(1))
    with pytest.raises(ValueError, match="the terminal is gone"):
        reader.close()
