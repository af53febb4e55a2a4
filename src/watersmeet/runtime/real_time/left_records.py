"""Records that only Spark can decode, and their way past Spark inside a task that reads a source.

A task of a source has two Python functions, with Spark's decoding between them.  The second one follows the source:
what it decodes itself goes to the operators from there, and never back to the JVM.  The first one only passes on what
the second one leaves, which it gets through a socket:

    LeftRecordsTask ─ decode, project (Spark) ─ FollowTask ─ frames
           └ ─ ─ ─ ─ ─ ─ ─ ← ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ┘
                     records left to Spark

Both are in one task of Spark, so on one machine.  The socket is in a folder of its own, readable for its owner only;
Spark carries its path to the second function, and it is removed once that one has connected.
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
from typing import BinaryIO, Self

import pyarrow as pa

from watersmeet.engine.frames import Frame, FrameKind, decode_table, encode_table, filler, to_record_batch
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.process_folder import LONGEST_SOCKET_PATH
from watersmeet.runtime.real_time.arrivals import Arrivals
from watersmeet.runtime.real_time.live_task import live_task
from watersmeet.runtime.real_time.rows_and_frames import in_turn
from watersmeet.runtime.worker_records import RecordRows

#: How long a function waits for the other one of its task, which starts at the same time.
_START_SECONDS = 120.0
#: What comes before a table in the socket: its size in bytes.
_SIZE = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class LeftRecordsTask:
    """Yields the records that the task's other function leaves to Spark, until that one ends.

    When the epoch ends, because the ``ticks`` do, it tells that function.
    """

    rows: RecordRows

    def run(self, ticks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The path of the socket, then records as they come; a sign follows those that come together."""
        with live_task():
            with _socket() as listening:
                yield self._sign(listening.getsockname())
                connection = _accepted(listening)
            with connection, _Ticks(ticks, connection), connection.makefile("rb") as file:
                for records in _received(file):
                    yield from map(self.rows.unpacked, records.to_batches())
                    yield self._sign()

    def _sign(self, path: str = "") -> pa.RecordBatch:
        """A sign, and the filler without which Spark would keep it back."""
        return self.rows.packed(to_record_batch([Frame(0, 0, path, FrameKind.LEFT, 0, b""), filler(0)]))


class DecodedBySpark:
    """The other end, in the function that follows the source: hands records over, and gets their rows.

    ``batches`` are what Spark has made of the output of ``LeftRecordsTask``.  Use it as a context: the other function
    ends with it.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._arrivals = Arrivals(batches)
        self._connection = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        _, sign = self._until_sign()
        self._connection.connect(sign.part)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def epoch_has_ended(self) -> bool:
        """Whether the ticks have ended."""
        with suppress(BlockingIOError):
            return not self._connection.recv(1, socket.MSG_DONTWAIT)
        return False

    def rows(self, records: pa.RecordBatch) -> pa.Table | None:
        """Return the projected rows of raw records; None if they have none."""
        payload = encode_table(records)
        self._connection.sendall(_SIZE.pack(payload.size))
        self._connection.sendall(payload)
        return self._until_sign()[0]

    def end(self) -> None:
        """End the other function, and wait until Spark has nothing more to bring."""
        self._connection.close()
        while self._arrivals.take():
            pass

    def _until_sign(self) -> tuple[pa.Table | None, Frame]:
        rows = list[pa.Table]()
        while arrived := self._arrivals.take():
            for part in in_turn(arrived):
                if isinstance(part, pa.Table):
                    rows.append(part)
                    continue
                for frame in part:
                    if frame.kind is FrameKind.LEFT:
                        return (pa.concat_tables(rows).combine_chunks() if rows else None), frame
        raise WatersmeetError("Spark has ended before it decoded the records that were left to it")


class _Ticks:
    """Reads ticks in a thread; when they end, the other side of the connection sees its end.

    An error of theirs is raised when the block ends.
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
        finally:
            with suppress(OSError):  # the other side has gone
                connection.shutdown(socket.SHUT_WR)


@contextmanager
def _socket() -> Iterator[socket.socket]:
    """A listening socket, in a folder that is removed with it."""
    parent = tempfile.gettempdir()
    is_short = len(os.fsencode(parent)) + len("/wm-12345678/left") <= LONGEST_SOCKET_PATH
    folder = tempfile.mkdtemp(prefix="wm-", dir=parent if is_short else "/tmp")
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{folder}/left")
            listening.listen(1)
            yield listening
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
        raise WatersmeetError("a task that follows a source has not started in time") from None
    connection.settimeout(None)
    return connection
