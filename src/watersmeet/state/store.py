"""The store of durable state: a map from names to bytes, committed with the micro-batch.

On Spark it is a ``MapState`` (runtime/processor.py); in the harness and in tests, a dictionary.
"""

from __future__ import annotations

from typing import Protocol


class Store(Protocol):
    """Durable bytes by name.  Writes of a batch that fails are rolled back."""

    def get(self, name: str) -> bytes | None:
        """Return the value of a name; None if there is none."""

    def put(self, name: str, value: bytes) -> None:
        """Set the value of a name."""

    def delete(self, name: str) -> None:
        """Delete a name."""


class MemoryStore(dict[str, bytes]):
    """A store in memory for the harness and for tests."""

    def put(self, name: str, value: bytes) -> None:
        """Set the value of a name."""
        self[name] = bytes(value)

    def delete(self, name: str) -> None:
        """Delete a name."""
        del self[name]
