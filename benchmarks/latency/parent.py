"""The end of a process whose standard input is its parent's: it ends with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

_STANDARD_INPUT = 0
_BYTES = 4096


def when_input_ends(act: Callable[[], object]) -> None:
    """Call ``act`` in a thread when standard input ends: the parent has closed it, or has ended itself."""

    def read() -> None:
        while os.read(_STANDARD_INPUT, _BYTES):
            pass
        act()

    threading.Thread(target=read, daemon=True).start()
