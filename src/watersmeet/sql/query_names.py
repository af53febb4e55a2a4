"""Names of queries, which are also the names of their checkpoint folders: made of the statement, so that they last."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def select_name(source: str) -> str:
    """Return the name of a SELECT: a hash of its text, in which the amount of white space does not count."""
    digest = hashlib.blake2b(" ".join(source.split()).encode(), digest_size=4).hexdigest()
    return f"select_{digest}"


def insert_name(target: str, sources: Iterable[str]) -> str:
    """Return the name of INSERT INTO target SELECT from sources (names of streams, in the order of the plan)."""
    return f"into_{target}_from_{'_'.join(dict.fromkeys(sources))}"


class NumberedNames:
    """Tells queries of one name apart by their text: the second text gets the suffix _2, and so on."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def name_for(self, wanted: str, source: str) -> str:
        """Return ``wanted``, or ``wanted_N`` if another text has that name; the same text keeps its name."""
        name, number = wanted, 1
        while self._sources.setdefault(name, source) != source:
            number += 1
            name = f"{wanted}_{number}"
        return name
