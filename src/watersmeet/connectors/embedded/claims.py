"""Files that get a number each, on a store without locks, where moving a file is no single step.

Who publishes a file first writes a claim: a file named by the number, which says what is to be moved where.  Only one
claim of a number succeeds.  Then it moves the file.  If it is killed between the two, whoever comes next moves the
file, because the claim says how.  Claims stay, so that a number is never claimed again.
"""

from __future__ import annotations

import json

from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.errors import CheckpointError, ConnectorError
from watersmeet.runtime.storage import Storage

_DIGITS = 12


class Claims:
    """The claims of one folder of numbered files; they are in a folder of their own."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def numbers(self) -> list[int]:
        """The numbers that are claimed, sorted."""
        return [int(name.removesuffix(".json")) for name in self._storage.names(self._folder)]

    def claim(self, number: int, staged: str, target: str) -> bool:
        """Claim a number for a staged file that is to be moved to ``target``; False if it is claimed already."""
        text = sealed(json.dumps({"staged": staged, "target": target})).decode()
        return self._storage.create_text(self._path(number), text)

    def complete(self, number: int) -> None:
        """Move the file that a claim names, unless that has been done.

        Raises ``CheckpointError`` for a claim that is damaged, and where the file is neither here nor there.
        """
        path = self._path(number)
        try:
            content, seal = read_sealed((self._storage.read_text(path) or "").encode())
            staged, target = str(content["staged"]), str(content["target"])
        except (DamageError, KeyError):
            seal, staged, target = Seal.WRONG, "", ""
        if seal is not Seal.RIGHT:
            raise CheckpointError(f"{path} is damaged", hint="restore the file from a copy")
        if self._storage.exists(target):
            return
        try:
            self._storage.rename(staged, target)
        except ConnectorError:
            if not self._storage.exists(target):  # else another process has moved it just now
                raise CheckpointError(
                    f"{target} is missing, and so is {staged}, of which it was to be made",
                    hint="restore the folder of the stream from a copy",
                ) from None

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:0{_DIGITS}d}.json"
