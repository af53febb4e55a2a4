"""Frames that wait in a task for its next operator or a later step: in memory, and in a file where they are many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from tempfile import TemporaryFile
from typing import IO

from watersmeet.engine.frames import Frame
from watersmeet.state.mapped_file import MappedFile, disk_errors

#: Payloads of so many bytes stay in memory.
_HELD_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class Mail:
    """Frames in their order, with ``rows``; ``held_bytes`` of payloads stay in memory, of ``nbytes`` in all."""

    held_bytes: int = _HELD_BYTES
    nbytes: int = 0
    rows: int = 0
    _frames: list[Frame] = field(default_factory=list)
    _places: dict[int, tuple[int, int]] = field(default_factory=dict)  # in the file, by number
    _file: IO[bytes] | None = None
    _mapped: MappedFile | None = None  # the file, once it is read

    def __len__(self) -> int:
        return len(self._frames)

    def put(self, frame: Frame) -> None:
        """Add a frame.  Raises ``LimitError`` if the disk is full, ``RuntimeError`` once frames have been read."""
        if self._mapped is not None:
            raise RuntimeError("frames have been read: no other can be added")
        size = len(frame.payload)
        self.nbytes += size
        self.rows += frame.frontier if frame.kind.has_rows else 0
        if self.nbytes > self.held_bytes and size:
            with disk_errors():
                if self._file is None:
                    self._file = TemporaryFile()  # noqa: SIM115 - closed when it is read
                self._places[len(self._frames)] = (self._file.tell(), size)
                self._file.write(frame.payload)
            frame = replace(frame, payload=b"")
        self._frames.append(frame)

    def read(self) -> Iterator[Frame]:
        """Yield the frames; payloads in the file are mapped into memory.

        Pages of those that have been read are given back now and then.
        """
        mapped, read = self._map(), 0
        for number, frame in enumerate(self._frames):
            start, size = self._places.get(number, (0, 0))
            if mapped is None or not size:
                yield frame
                continue
            yield replace(frame, payload=mapped.buffer.slice(start, size))
            read += size
            if read > self.held_bytes:
                mapped.release()
                read = 0

    def take(self) -> Iterator[Frame]:
        """Yield the frames, once."""
        yield from self.read()
        self._frames, self._mapped = [], None

    def _map(self) -> MappedFile | None:
        if self._file is not None:
            with disk_errors(), self._file as file:
                self._mapped = MappedFile(file)
            self._file = None
        return self._mapped
