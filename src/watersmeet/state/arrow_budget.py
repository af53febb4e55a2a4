"""The budget of a process for rows in Arrow: what exceeds it goes to files."""

from __future__ import annotations


class ArrowBudget:
    """So many bytes, for all working sets of a process together."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.left = max_bytes

    def take(self, nbytes: int) -> bool:
        """Take bytes, if so many are left."""
        if nbytes > self.left:
            return False
        self.left -= nbytes
        return True

    def give_back(self, nbytes: int) -> None:
        """Return bytes that were taken."""
        self.left += nbytes
