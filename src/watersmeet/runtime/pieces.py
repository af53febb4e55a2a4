"""What a query has read from PostgreSQL and may have to read again: pieces, in a folder of its checkpoint.

The folder's listing is the truth; no file changes once it is there.

    slot.json                           the replication slot, its server and table (sealed)
    begin-RUN-TOKEN-NUMBER              a run of the reader begins, with this number for its first piece
    NUMBER-RUN-TOKEN-ROWS-END-POSITION-TIME.piece
    position-POSITION                   the log has been read to here, and held nothing since the last piece

A run voids what earlier runs have written from its first number on: a reader that was cut off may still write a piece
that it had in memory.  The name of a piece says how it ends (``End``), to which position of the server's log it
reaches, and the newest commit's time.  Its content is rows as text in Arrow, after a checksum.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.fs

from watersmeet.checksums import checksum
from watersmeet.errors import CheckpointError
from watersmeet.runtime.inspection.files import Files

SUFFIX = ".piece"
SLOT_FILE = "slot.json"
_BEGIN = re.compile(r"begin-(\d{6})-([0-9a-f]{8})-(\d{12})")
_PIECE = re.compile(r"(\d{12})-(\d{6})-([0-9a-f]{8})-(\d+)-([a-z])-([0-9a-f]{16})-(\d+)\.piece")
_POSITION = re.compile(r"position-([0-9a-f]{16})")
_DIGITS = 16
_RESTORE = "restore the folder from a copy, or start on a new checkpoint (it begins with a new snapshot)"


class End(StrEnum):
    """How a piece ends: where a batch may end, or amid a transaction."""

    AMID = "m"
    SNAPSHOT = "s"
    LAST_OF_SNAPSHOT = "f"
    TRANSACTION = "t"


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A piece, as its name tells."""

    number: int
    run: int
    token: str
    rows: int
    end: End
    position: int
    time: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return (
            f"{self.number:012d}-{self.run:06d}-{self.token}-{self.rows}-{self.end}-{self.position:016x}-{self.time}"
            f"{SUFFIX}"
        )

    @property
    def is_cut(self) -> bool:
        """Whether a batch may end with it."""
        return self.end is not End.AMID


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds: pieces that count, in order; files that do not; how far the log has been read."""

    pieces: tuple[Piece, ...]
    void: tuple[str, ...]
    position: int
    runs: int

    @property
    def is_complete(self) -> bool:
        """Whether the snapshot is whole."""
        return any(piece.end in (End.LAST_OF_SNAPSHOT, End.TRANSACTION) for piece in self.pieces)

    @property
    def next_number(self) -> int:
        """The number of the next piece."""
        return self.pieces[-1].number + 1 if self.pieces else 0


def listing_of(names: Iterable[str]) -> Listing:
    """Return what the names in a folder say."""
    begins: list[tuple[int, str, int]] = []
    found: list[Piece] = []
    positions = []
    for name in names:
        if (begin := _BEGIN.fullmatch(name)) is not None:
            begins.append((int(begin[1]), begin[2], int(begin[3])))
        elif (named := _PIECE.fullmatch(name)) is not None:
            number, run, token, rows, end, position, time = named.groups()
            found.append(Piece(int(number), int(run), token, int(rows), End(end), int(position, 16), int(time)))
        elif (at := _POSITION.fullmatch(name)) is not None:
            positions.append(int(at[1], 16))
    begins.sort()
    known = {(run, token): place for place, (run, token, _) in enumerate(begins)}
    pieces, void = [], []
    for piece in sorted(found):
        place = known.get((piece.run, piece.token))
        later = [] if place is None else [number for _, _, number in begins[place + 1 :]]
        if place is None or piece.number < begins[place][2] or any(piece.number >= number for number in later):
            void.append(piece.name)
        else:
            pieces.append(piece)
    while pieces and not pieces[-1].is_cut:  # the transaction was not read to its end
        void.append(pieces.pop().name)
    reached = max([*positions, *(piece.position for piece in pieces)], default=0)
    return Listing(tuple(pieces), tuple(void), reached, max((run for run, _, _ in begins), default=0))


class Pieces:
    """The folder of the pieces of one stream in one checkpoint: a path, or a URI of a store."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._files = Files(folder)
        self._local = Path(self._files.root) if isinstance(self._files.filesystem, pyarrow.fs.LocalFileSystem) else None

    def listing(self) -> Listing:
        """Return what the folder holds."""
        return listing_of(self._files.names())

    def read_text(self, name: str) -> str | None:
        """Return the text of a file; None if there is none."""
        return self._files.read_text(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, for its owner alone; it is there as a whole, and durable, when this returns."""
        if self._local is None:
            self._files.write(name, content)
            return
        self._local.mkdir(mode=0o700, parents=True, exist_ok=True)
        hidden = self._local / f".{name}.{uuid.uuid4().hex}.tmp"
        handle = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(self._local / name)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
        folder = os.open(self._local, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def begin(self, listing: Listing, number: int) -> tuple[int, str]:
        """Begin a run with that number for its first piece; return its number and token.  Delete what is void then."""
        run, token = listing.runs + 1, uuid.uuid4().hex[:8]
        self.write(f"begin-{run:06d}-{token}-{number:012d}", b"")
        self.delete([*listing.void, *(piece.name for piece in listing.pieces if piece.number >= number)])
        needed = {(f"{piece.run:06d}", piece.token) for piece in listing.pieces if piece.number < number}
        needed.add((f"{run:06d}", token))
        begins = [found for found in map(_BEGIN.fullmatch, self._files.names()) if found is not None]
        self.delete(found[0] for found in begins if (found[1], found[2]) not in needed)
        return run, token

    def note_position(self, position: int) -> None:
        """Note that the log has been read to here."""
        self.write(f"position-{position:0{_DIGITS}x}", b"")
        older = [found for found in map(_POSITION.fullmatch, self._files.names()) if found is not None]
        self.delete(found[0] for found in older if int(found[1], 16) < position)

    def delete_before(self, number: int) -> None:
        """Delete the pieces before that number, which no batch reads again; the newest piece stays."""
        pieces = self.listing().pieces
        self.delete(piece.name for piece in pieces[:-1] if piece.number < number)

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; one that is gone already is no error."""
        for name in names:
            if self._files.exists(name):
                self._files.delete(name)

    def write_rows(self, piece: Piece, rows: pa.RecordBatch) -> None:
        """Write a piece."""
        self.write(piece.name, encoded(rows))

    def read_rows(self, name: str) -> pa.Table:
        """Return the rows of a piece; ``CheckpointError`` if it is missing or damaged."""
        content = self._files.read(name)
        if content is None:
            raise CheckpointError(f"{self.folder}/{name} is missing", hint=_RESTORE)
        return decoded(content, f"{self.folder}/{name}")


def encoded(rows: pa.RecordBatch) -> bytes:
    """Return rows as the content of a piece."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return checksum([body]).encode() + b"\n" + body


def decoded(content: bytes, path: str) -> pa.Table:
    """Return the rows of a piece; ``CheckpointError`` if these are not the bytes that were written."""
    seal, _, body = content.partition(b"\n")
    if seal.decode(errors="replace") != checksum([body]):
        raise CheckpointError(f"{path} is damaged: its checksum differs", hint=_RESTORE)
    with pa.ipc.open_stream(body) as reader:
        return reader.read_all()


def missing(pieces: Sequence[Piece], start: int, end: int) -> int | None:
    """Return the number of the first piece of a batch that is not there."""
    known = {piece.number for piece in pieces}
    return next((number for number in range(start, end) if number not in known), None)
