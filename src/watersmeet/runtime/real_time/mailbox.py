"""Rows that workers of this machine send to the driver, as files of a folder that both can reach."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from watersmeet.runtime.exchange import batch_id
from watersmeet.runtime.real_time.live_task import task_number

_LOOK_SECONDS = 0.02
_numbers: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Mailbox:
    """A folder of messages, of which each is a table; a task's messages are taken in their order."""

    folder: str

    def post(self, rows: pa.Table) -> None:
        """Send rows; called in a task."""
        number = _numbers[self.folder] = _numbers.get(self.folder, 0) + 1
        name = f"{batch_id():09}-{number:09}-{task_number():04}"
        hidden = Path(self.folder, f".{name}")
        with pa.OSFile(str(hidden), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows)
        hidden.rename(Path(self.folder, f"{name}.arrow"))

    def take(self, use: Callable[[pa.Table], None]) -> None:
        """Pass on all messages that are there, and delete them; called in the driver."""
        for path in sorted(Path(self.folder).glob("*.arrow")):
            with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
                use(reader.read_all())
            path.unlink()


class MailboxReader:
    """Passes messages to ``use`` as they come, in a thread, until ``close``; an error of ``use`` is raised there."""

    def __init__(self, mailbox: Mailbox, use: Callable[[pa.Table], None]) -> None:
        self._mailbox, self._use = mailbox, use
        self._closing = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._read, name="watersmeet-mailbox", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass on what is left, and end the thread."""
        self._closing.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _read(self) -> None:
        try:
            while not self._closing.wait(_LOOK_SECONDS):
                self._mailbox.take(self._use)
            self._mailbox.take(self._use)
        except Exception as error:  # noqa: BLE001 - raised where the reader is closed
            self._error = error
