"""Frames that wait in a task for its next operator: in memory, and in a file where they are many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from tempfile import TemporaryFile
from typing import IO

from watersmeet.engine.frames import Frame
from watersmeet.state.mapped_file import MappedFile

#: Payloads of so many bytes stay in memory.
_HELD_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class Mail:
    """The frames for one operator; ``held_bytes`` of payloads stay in memory."""

    held_bytes: int = _HELD_BYTES
    _frames: list[Frame] = field(default_factory=list)
    _places: dict[int, tuple[int, int]] = field(default_factory=dict)  # in the file, by number
    _nbytes: int = 0
    _file: IO[bytes] | None = None

    def put(self, frame: Frame) -> None:
        """Add a frame."""
        size = len(frame.payload)
        self._nbytes += size
        if self._nbytes > self.held_bytes and size:
            if self._file is None:
                self._file = TemporaryFile()  # noqa: SIM115 - closed by take
            self._places[len(self._frames)] = (self._file.tell(), size)
            self._file.write(frame.payload)
            frame = replace(frame, payload=b"")
        self._frames.append(frame)

    def take(self) -> Iterator[Frame]:
        """Yield the frames in their order, once; payloads in the file are mapped into memory.

        Pages of those that have been taken are given back now and then.
        """
        frames, self._frames = self._frames, []
        if self._file is None:
            yield from frames
            return
        with self._file as file:
            mapped = MappedFile(file)
        read = 0
        for number, frame in enumerate(frames):
            start, size = self._places.get(number, (0, 0))
            yield replace(frame, payload=mapped.buffer.slice(start, size)) if size else frame
            read += size
            if read > self.held_bytes:
                mapped.release()
                read = 0
