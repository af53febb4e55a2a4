"""In which ways a case of the notation runs in every run of the tests, and which are left to `make test-all`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from watersmeet.testing.notation import Case
from watersmeet.testing.regroup import variants

AS_WRITTEN, AT_ONCE = "as written", "all at once"
#: It cuts a case into rows and restarts between them: it stands for those that do one of both.
BOTH = "row by row, restarts"
#: Files with the cases of another engine's suite.
PEERS = "peers_"


def ways(case: Case) -> Iterator[tuple[str, Case, bool]]:
    """The variants of a case, each with its name and whether it is left to `make test-all`.

    Every run has seven of sixteen cases in one way: as they are written, or cut in another way; of those of peers,
    which repeat each other more, a quarter of that.
    """
    digest = zlib.crc32(case.title.encode())
    if PEERS in case.path and digest // 16 % 4:
        yield from ((name, variant, True) for name, variant in variants(case))
        return
    way = (AT_ONCE, BOTH, *9 * [None], *5 * [AS_WRITTEN])[digest % 16]
    for name, variant in variants(case):
        yield name, variant, name != way
