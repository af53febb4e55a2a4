"""SQL as a list of pieces, which can be written in many ways that mean the same.

Generators write plain SQL with three signs of their own: ``$name`` is an alias of a stream, ``«`` and ``»`` stand round
a condition, where redundant parentheses may be written.  Keywords are in capitals, names in small letters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

_PIECE = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|\$\w+|\w+(?:\.\d+)?|<=>|<>|[<>!|]=|\|\||[^\s\w]", re.DOTALL)
_KEYWORD = re.compile(r"[A-Z][A-Z_]*")
_SPACES = (" ", " ", " ", "\n", "\t", "  \n ", " /* c */ ", " -- c 'x\n", "\r\n", "/* /* SELECT */ ; */")
#: What an alias ends with in a variant: nothing else has it.  So they sort alike, as a plan may list inputs by name.
_SUFFIX = "xq"


def pieces(sql: str) -> list[str]:
    """Cut generated SQL."""
    return _PIECE.findall(sql)


def plain(parts: Iterable[str]) -> str:
    """The pieces as SQL, as a person would write it."""
    return " ".join(part.removeprefix("$") for part in parts if part not in "«»")


def variant(parts: Sequence[str], rng: random.Random) -> str:
    """The same SQL with keywords in another case, other white space, comments, parentheses and aliases."""
    doubled = _parentheses(parts, rng)
    return "".join(f"{_written(part, rng)}{rng.choice(_SPACES)}" for part in doubled)


def with_plain_aliases(text: str) -> str:
    """What a plan says of a variant, with the aliases of the plain SQL."""
    return text.replace(_SUFFIX, "")


def _parentheses(parts: Sequence[str], rng: random.Random) -> list[str]:
    """Round some conditions, parentheses in place of the marks; no marks elsewhere."""
    written: list[str] = []
    open_ones: list[int] = []
    for part in parts:
        if part == "«":
            open_ones.append(rng.choice((0, 0, 1, 2)))
            written += ["("] * open_ones[-1]
        elif part == "»":
            written += [")"] * open_ones.pop()
        else:
            written.append(part)
    return written


def _written(part: str, rng: random.Random) -> str:
    if part.startswith("$"):
        return f"{part[1:]}{_SUFFIX}"
    if not _KEYWORD.fullmatch(part):
        return part
    return rng.choice((part, part.lower(), part.title(), "".join(rng.choice((c, c.lower())) for c in part)))
