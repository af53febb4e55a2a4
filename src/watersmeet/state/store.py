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


class NamedStore:
    """A part of a store: the values whose names begin with ``prefix``."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def get(self, name: str) -> bytes | None:
        """Return the value of a name; None if there is none."""
        return self._store.get(self._prefix + name)

    def put(self, name: str, value: bytes) -> None:
        """Set the value of a name."""
        self._store.put(self._prefix + name, value)

    def delete(self, name: str) -> None:
        """Delete a name."""
        self._store.delete(self._prefix + name)
