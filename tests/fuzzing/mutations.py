"""Damage to a statement, so that the front end must refuse what it cannot read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.fuzzing.pieces import pieces, plain
from tests.fuzzing.statements import statement

_ODD = (
    "\x00", "\x07", "\x1b[0m", "\ufeff", "\u200b", "\u202e", "\u2028", "\xa0", "é", "😀", "\U0010ffff", "ß", "İ", "０",
    "½", "\\", "\\\\'", '"', "`", "'", "$", "${env:HOME}", "?", ":x", "@", "#", "~", "^", "|>", "->", "=>", "::",
    "..", "{}", "{{", "[0]", "/*", "*/", "--", "/*+ BROADCAST(a) */", ";", ";;", "\n", "\r", "\t", "%", "%s", "!",
    "<", ">>", "\x85", "\x0c",
)  # fmt: skip
_NUMBERS = (
    "1e400", "-1", "99999999999999999999999999999999", "0x7f", "1e-400", "1L", "1S", "2.5BD", "00", "1__0", "1.2.3",
    ".5", "5.", "1e", "NaN", "Infinity", "0b1", "1" + "0" * 5_000,
)  # fmt: skip
_WORDS = (
    "SELECT", "FROM", "JOIN", "ON", "WITHIN", "GRACE", "PERIOD", "ALLOWED LATENESS", "EMIT", "SETTINGS", "NULL",
    "NOT", "AND", "INTERVAL", "AS", "OF", "LIMIT 1", "DISTINCT", "UNION ALL", "EXISTS", "OVER ()", "PIVOT",
    "LATERAL VIEW", "TABLESAMPLE", "USING", "(", ")", ",", ".", "*", "=", "WITH", "CREATE", "TABLE", "END", "BEGIN",
    "CASE", "WHEN", "ROLLUP", "QUALIFY", "x -> x + 1", "STRUCT(1 AS a)", "COLLATE UTF8_LCASE", "CAST(NULL AS",
    "TRUE", "DATE '2026-13-45'", "TIMESTAMP 'x'", "INTERVAL '1' CENTURY", "INTERVAL '1 x'", "INTERVAL", "X'0G'",
    "UNNEST(a) AS t(x)", "explode(", "LATERAL", "WITH ORDINALITY", "ON TRUE", "r'\\'",
    "VALUES (1)", "FOR SYSTEM_TIME AS OF", "IN ()",
)  # fmt: skip
_DEPTHS = (5, 20, 60, 200, 1_000)


def mutated(rng: random.Random) -> str:
    """A statement with one to four kinds of damage."""
    parts = [part for part in pieces(statement(rng)) if part not in "«»"]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        parts = rng.choice(_OF_PIECES)(rng, parts)
    text = plain(parts)
    if rng.random() < 0.3:
        text = rng.choice(_OF_TEXT)(rng, text)
    return text


def _at(rng: random.Random, parts: Sequence[str]) -> int:
    return rng.randrange(len(parts)) if parts else 0


def _swap(rng: random.Random, parts: list[str]) -> list[str]:
    if parts:
        one, other = _at(rng, parts), _at(rng, parts)
        parts[one], parts[other] = parts[other], parts[one]
    return parts


def _delete(rng: random.Random, parts: list[str]) -> list[str]:
    at = _at(rng, parts)
    return parts[:at] + parts[at + rng.choice((1, 1, 1, 2, 5)) :]


def _repeat(rng: random.Random, parts: list[str]) -> list[str]:
    at = _at(rng, parts)
    return parts[:at] + parts[at : at + rng.choice((1, 2, 8))] * rng.choice((2, 2, 3)) + parts[at + 1 :]


def _insert(rng: random.Random, parts: list[str]) -> list[str]:
    at = _at(rng, parts)
    return [*parts[:at], rng.choice(rng.choice((_ODD, _NUMBERS, _WORDS, _WORDS))), *parts[at:]]


def _replace(rng: random.Random, parts: list[str]) -> list[str]:
    at = _at(rng, parts)
    return [*parts[:at], rng.choice(rng.choice((_ODD, _NUMBERS, _WORDS, _WORDS))), *parts[at + 1 :]]


def _splice(rng: random.Random, parts: list[str]) -> list[str]:
    other = [part for part in pieces(statement(rng)) if part not in "«»"]
    return parts[: _at(rng, parts)] + other[_at(rng, other) :]


def _nest(rng: random.Random, parts: list[str]) -> list[str]:
    depth, at = rng.choice(_DEPTHS), _at(rng, parts)
    before, after = rng.choice(
        (
            ("(", ")"), ("NOT", ""), ("-", ""), ("(SELECT * FROM", ")"), ("CASE WHEN 1 = 1 THEN", "END"), ("[", "]"),
            ("abs (", ")"), ("CAST (", "AS INT )"), ("EXPLAIN", ""), ("ARRAY <", ">"), ("/*", "*/"),
            ("a JOIN (", ") ON 1"),
        )
    )  # fmt: skip
    return [*parts[:at], *[before] * depth, *parts[at : at + 1], *[after] * depth, *parts[at + 1 :]]


def _lengthen(rng: random.Random, parts: list[str]) -> list[str]:
    count, at = rng.choice(_DEPTHS), _at(rng, parts)
    more = rng.choice(
        (", {}", "+ {}", "AND {} = 1", "OR a.v = {}", "|| 'x{}'", ". x{}", "UNION ALL SELECT {}", "x{}", "[ {} ]")
    )
    return [*parts[:at], *(more.replace("{}", str(i)) for i in range(count)), *parts[at:]]


def _cut(rng: random.Random, text: str) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _bytes(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_ODD) + text[at + rng.choice((0, 1)) :]


def _open(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(("'", '"', "`", "/*", "r'", "--", "(", "'\\'", "$$")) + text[at:]


def _joined(rng: random.Random, text: str) -> str:
    between = rng.choice((";", " ; -- x", ";;", "; END", ";\n"))
    return f"{text}{between}{plain(pieces(statement(rng)))}"


_OF_PIECES: tuple[Callable[[random.Random, list[str]], list[str]], ...] = (
    _swap, _swap, _delete, _delete, _delete, _repeat, _insert, _insert, _replace, _replace, _splice, _nest, _lengthen,
)  # fmt: skip
_OF_TEXT: tuple[Callable[[random.Random, str], str], ...] = (_cut, _bytes, _bytes, _open, _joined)
