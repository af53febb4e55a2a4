"""Where durable state lives: a map from names to bytes, committed with the micro-batch.

On Spark it is a ``MapState`` (see runtime/processor.py), in the harness and in tests a dictionary.
"""

from __future__ import annotations

from typing import Protocol


class Store(Protocol):
    """Durable bytes by name.  What is written in a batch that fails is never seen again."""

    def get(self, name: str) -> bytes | None:
        """The value under a name."""

    def put(self, name: str, value: bytes) -> None:
        """Put a value under a name."""

    def delete(self, name: str) -> None:
        """Take a value away."""


class MemoryStore(dict[str, bytes]):
    """A store in memory for the harness and for tests."""

    def put(self, name: str, value: bytes) -> None:
        """Put a value under a name."""
        self[name] = bytes(value)

    def delete(self, name: str) -> None:
        """Take a value away."""
        del self[name]
