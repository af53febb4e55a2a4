"""In which ways a case of the notation runs in every run of the tests, and which are left to `make test-all`."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.testing.notation import Case
from watersmeet.testing.regroup import variants

#: It cuts a case into rows and restarts between them: in every run it stands for those that do one of both.
BOTH = "row by row, restarts"


def ways(case: Case) -> Iterator[tuple[str, Case, bool]]:
    """The variants of a case, each with its name and whether it is left to `make test-all`."""
    found = dict(variants(case))
    for name, variant in found.items():
        yield name, variant, BOTH in found and name in ("restarts", "row by row")
