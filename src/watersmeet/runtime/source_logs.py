"""Which files Spark has listed for a query so far, from the logs in its checkpoint.

Spark writes a file for each batch of a source of files (``sources/0/12``), a line for each of its files, and now and
then one with all before it (``12.compact``).  Older ones are deleted some time later.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from functools import cache
from urllib.parse import unquote

from watersmeet.runtime.run_progress import Logged
from watersmeet.runtime.storage import Storage

_NAME = re.compile(r"(\d+)(\.compact)?")


def source_logs(storage: Callable[[], Storage], checkpoint: str) -> Callable[[int], Logged]:
    """The logs of the sources in a checkpoint of Spark, by their numbers; ``storage`` is called when one is read."""

    @cache
    def logged(number: int) -> Logged:
        return SourceLog(storage(), f"{checkpoint}/sources/{number}").names

    return logged


class SourceLog:
    """The log of one source; each of its files is read once."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._read = -1
        self._batches: dict[str, int] = {}

    def names(self, until: int) -> Collection[str]:
        """The names of the files, without their folders, in batches up to one."""
        found = [match for name in self._storage.names(self._folder) if (match := _NAME.fullmatch(name))]
        compact = max((int(match[1]) for match in found if match[2] and int(match[1]) > self._read), default=-1)
        for match in sorted(found, key=lambda match: int(match[1])):
            number = int(match[1])
            if number > max(self._read, compact) or (number == compact and match[2]):
                self._take(match[0])
        self._read = max([self._read, *(int(match[1]) for match in found)])
        return {name for name, batch in self._batches.items() if batch <= until}

    def _take(self, name: str) -> None:
        text = self._storage.read_text(f"{self._folder}/{name}") or ""
        for line in reversed(text.splitlines()[1:]):  # the first one is the format's version
            entry = json.loads(line)
            batch = int(entry["batchId"])
            if batch <= self._read:  # as are those before it
                return
            self._batches[unquote(str(entry["path"]).rpartition("/")[2])] = batch
