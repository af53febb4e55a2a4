"""Frames that wait for the next operator of a task: in memory or in a file, they come back as they were."""

from __future__ import annotations

from tempfile import TemporaryFile
from typing import IO

import pytest

from watersmeet.engine import mail
from watersmeet.engine.frames import Frame, FrameKind
from watersmeet.engine.mail import Mail
from watersmeet.errors import LimitError


def frame(number: int, payload: bytes) -> Frame:
    return Frame(3, number, "", FrameKind.ROWS, number, payload)


@pytest.mark.parametrize("held", [0, 5, 1000])
def test_frames_come_back_in_their_order(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = 0

    def count() -> IO[bytes]:
        nonlocal opened
        opened += 1
        return TemporaryFile()

    monkeypatch.setattr(mail, "TemporaryFile", count)
    payloads = [b"abc", b"", b"defg", b"h" * 100]
    box = Mail(held_bytes=held)
    for number, payload in enumerate(payloads):
        box.put(frame(number, payload))
    read = [list(box.read()) for _ in range(2)]
    taken = list(box.take())
    assert read == [taken, taken]
    assert box.nbytes == 107
    assert [(each.input, bytes(each.payload)) for each in taken] == list(enumerate(payloads))
    assert opened == (held < 107)


def test_a_full_disk_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> IO[bytes]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mail, "TemporaryFile", full)
    with pytest.raises(LimitError, match=r"cannot be written to .*: No space left on device"):
        Mail(held_bytes=0).put(frame(0, b"abc"))


def test_an_empty_box_gives_nothing() -> None:
    assert list(Mail().take()) == []
