"""Records that only Spark can decode, and how they reach it from inside a task that reads a source.

A task of a source has two Python functions, with Spark's decoding between them.  The second one follows the source,
decodes what it can, and sends the rows to the operators.  All other records it gives to the first one, through a
socket.  That one hands them to Spark, and their rows come to the second one as its input:

    RecordsForSparkTask ─ decode, project (Spark) ─ FollowTask ─ frames
             ↑                                          │
             └────── records left to Spark (socket) ────┘

Both are in one task of Spark, so on one machine.  The socket is in a folder of its own, which only its owner can read.
Spark carries its path to the second function; folder and socket are removed once that function has connected.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import pyarrow as pa

from watersmeet.engine.frames import Frame, FrameKind, decode_table, encode_table, filler, to_record_batch
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.process_folder import LONGEST_SOCKET_PATH, locked_folder
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.real_time.rows_and_frames import in_turn
from watersmeet.runtime.worker_records import RecordRows

#: How long a function waits for the other one of its task, which starts at the same time.
_START_SECONDS = 120.0
#: What comes before a table in the socket: its size in bytes.
_SIZE = struct.Struct("<q")
#: What says that the epoch ends.
_END = b"."
_NAME = "left"
_LONGEST_NAME = len(f"/watersmeet-run-4194304-12345678/{_NAME}")


@dataclass(frozen=True, slots=True)
class RecordsForSparkTask:
    """Yields the records that the function which follows the source leaves to Spark, until that function ends.

    The epoch ends when the ``ticks`` do; then it tells the other function.
    """

    rows: RecordRows

    def run(self, ticks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A frame with the socket's path; then the records that come together, and a frame that ends them."""
        with live_task():
            with _socket() as listening:
                yield self._frame(listening.getsockname())
                connection = _accepted(listening)
            with connection, _Ticks(ticks, connection), connection.makefile("rb") as file:
                for records in _received(file):
                    yield from map(self.rows.unpacked, records.to_batches())
                    yield self._frame()

    def _frame(self, path: str = "") -> pa.RecordBatch:
        """A frame that says that Spark has decoded all before it, and the filler without which Spark keeps it back."""
        return self.rows.packed(to_record_batch([Frame(0, 0, path, FrameKind.DECODED, 0, b""), filler(0)]))


class DecodedBySpark:
    """What Spark makes of the output of ``RecordsForSparkTask``, in the function that follows the source.

    A context: when it is left, the other function ends.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._arrivals = Arrivals(batches)

    def __enter__(self) -> Self:
        _, first = self._until_frame()
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connection.connect(first.part)
        except OSError:
            self._connection.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def epoch_has_ended(self) -> bool:
        """Whether the ticks have ended; raises ``WatersmeetError`` if the other function has, and they have not."""
        with suppress(BlockingIOError):
            if not self._connection.recv(1, socket.MSG_DONTWAIT):
                raise WatersmeetError("the function that gives records to Spark has ended before the epoch")
            return True
        return False

    def rows(self, records: pa.RecordBatch) -> pa.Table | None:
        """Give raw records to Spark and return their projected rows; None if they have none."""
        payload = encode_table(records)
        self._connection.sendall(_SIZE.pack(payload.size))
        self._connection.sendall(payload)
        return self._until_frame()[0]

    def end(self) -> None:
        """End the other function, and wait until Spark has nothing more to bring."""
        self._connection.close()
        while self._arrivals.take():
            pass

    def _until_frame(self) -> tuple[pa.Table | None, Frame]:
        rows = list[pa.Table]()
        while arrived := self._arrivals.take():
            for part in in_turn(arrived):
                if isinstance(part, pa.Table):
                    rows.append(part)
                    continue
                for frame in part:
                    if frame.kind is FrameKind.DECODED:
                        return (pa.concat_tables(rows).combine_chunks() if rows else None), frame
        raise WatersmeetError("Spark's decoding has ended before the function that follows the source")


class _Ticks:
    """Reads ticks in a thread; when they end, it sends a byte.

    If they fail, the other side of the connection sees its end, and the error is raised when the block ends.
    """

    def __init__(self, ticks: Iterable[pa.RecordBatch], connection: socket.socket) -> None:
        self._error: BaseException | None = None
        threading.Thread(target=self._read, args=(ticks, connection), name="watersmeet-ticks", daemon=True).start()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._error is not None:
            raise self._error

    def _read(self, ticks: Iterable[pa.RecordBatch], connection: socket.socket) -> None:
        try:
            for _ in ticks:
                pass
        except BaseException as error:  # noqa: BLE001 - raised where the block ends
            self._error = error
        with suppress(OSError):  # the other side has gone
            if self._error is None:
                connection.sendall(_END)
            connection.shutdown(socket.SHUT_WR)


@contextmanager
def _socket() -> Iterator[socket.socket]:
    """A listening socket, in a folder that is removed with it, or by the next process if this one is killed."""
    parent = tempfile.gettempdir()
    is_short = len(os.fsencode(parent)) + _LONGEST_NAME <= LONGEST_SOCKET_PATH
    folder = locked_folder(Path(parent if is_short else "/tmp"))
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder.path / _NAME))
            listening.listen(1)
            yield listening
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        os.close(folder.lock)


def _received(file: BinaryIO) -> Iterator[pa.Table]:
    """Yield what the other side sends until it closes the connection; what it could not send whole is left out."""
    while len(head := file.read(_SIZE.size)) == _SIZE.size:
        (size,) = _SIZE.unpack(head)
        if len(payload := file.read(size)) == size:
            yield decode_table(payload)


def _accepted(listening: socket.socket) -> socket.socket:
    listening.settimeout(_START_SECONDS)
    try:
        connection, _ = listening.accept()
    except TimeoutError:
        raise WatersmeetError(
            f"the function that follows a source has not started within {_START_SECONDS:.0f} s",
            hint="the query is run again; if that happens often, give it more cores",
        ) from None
    connection.settimeout(None)
    return connection
