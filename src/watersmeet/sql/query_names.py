"""Names of queries, which are also the names of their checkpoint folders: made of the statement, so that they last."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence


def select_name(source: str) -> str:
    """Return the name of a SELECT."""
    return f"select_{text_hash(source)}"


def insert_name(target: str, sources: Iterable[str]) -> str:
    """Return the name of INSERT INTO target SELECT from sources (names of streams, in the order of the plan)."""
    return f"into_{target}_from_{'_'.join(dict.fromkeys(sources))}"


def set_name(names: Sequence[str]) -> str:
    """Return the name of queries that run as one."""
    first, *others = names
    return f"{first}_and_{len(others)}_more" if others else first


def text_hash(source: str) -> str:
    """Return a hash of SQL text that ignores differences in white space."""
    return hashlib.blake2b(" ".join(source.split()).encode(), digest_size=4).hexdigest()


class NumberedNames:
    """Tells queries of one name apart by their text: the second text gets the suffix _2, and so on."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def copy(self) -> NumberedNames:
        """Return the same names, to which others can be added apart."""
        found = NumberedNames()
        found._sources = dict(self._sources)
        return found

    def name_for(self, wanted: str, source: str) -> str:
        """Return ``wanted``, or ``wanted_N`` if another text has that name; the same text keeps its name."""
        name, number = wanted, 1
        while self._sources.setdefault(name, source) != source:
            number += 1
            name = f"{wanted}_{number}"
        return name
