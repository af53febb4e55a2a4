"""In which ways a case of the notation runs in every run of the tests, and which are left to `make test-all`."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from watersmeet.testing.notation import Case
from watersmeet.testing.regroup import variants

AS_WRITTEN, AT_ONCE = "as written", "all at once"
#: It cuts a case into rows and restarts between them: it stands for those that do one of both.
BOTH = "row by row, restarts"


def ways(case: Case) -> Iterator[tuple[str, Case, bool]]:
    """The variants of a case, each with its name and whether it is left to `make test-all`.

    Every run has most cases in one way: as they are written, or cut in another way.
    """
    way = (AT_ONCE, BOTH, None, None, None, *11 * [AS_WRITTEN])[zlib.crc32(case.title.encode()) % 16]
    for name, variant in variants(case):
        yield name, variant, name != way
