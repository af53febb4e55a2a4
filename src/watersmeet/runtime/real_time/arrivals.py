"""What has arrived: a thread reads an iterator that may wait, so that its reader takes all that is there."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Arrivals(Generic[T]):
    """The items of an iterator; at most ``most`` of them wait here, then the sender has to."""

    def __init__(self, items: Iterable[T], most: int = 10_000) -> None:
        self._waiting: deque[T] = deque()
        self._most = most
        self._has_ended = False
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=(items,), name="watersmeet-arrivals", daemon=True).start()

    def take(self, seconds: float | None = None) -> list[T]:
        """Return all that has arrived; if that is nothing, wait for an item or the end, at most ``seconds``.

        An empty list before the end means that the time is over.  Raises what the iterator raised, after its items.
        """
        with self._changed:
            if not self._waiting and not self._has_ended:
                self._changed.wait(seconds)
            taken = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        if not taken and self._error is not None:
            raise self._error
        return taken

    def _read(self, items: Iterable[T]) -> None:
        try:
            for item in items:
                with self._changed:
                    while len(self._waiting) >= self._most:
                        self._changed.wait()
                    self._waiting.append(item)
                    self._changed.notify_all()
        except BaseException as error:  # noqa: BLE001 - raised where the items are taken
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()
