"""The clause WINDOW: its windows are written wherever their names stand, so that no later stage sees names.

SELECT sum(x) OVER w, avg(x) OVER w FROM a WINDOW w AS (PARTITION BY k ORDER BY ts)
SELECT sum(x) OVER (PARTITION BY k ORDER BY ts), avg(x) OVER (PARTITION BY k ORDER BY ts) FROM a
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from watersmeet.errors import BindError, UnsupportedError, did_you_mean
from watersmeet.expressions.positions import position_of

#: What a window consists of.
_PARTS = ("partition_by", "order", "spec")


def fill_windows(tree: exp.Expr) -> None:
    """Change all SELECTs of a query in place.

    A window in WINDOW may be the name of another one there.  Raises ``BindError`` for a name that WINDOW does not have
    or has twice, and ``UnsupportedError`` where there is more beside a name.
    """
    for select in tree.find_all(exp.Select):
        named: dict[str, exp.Window] = {}
        for window in select.args.get("windows") or ():
            if window.name.lower() in named:
                raise BindError(f"WINDOW names two windows {window.name}", position=position_of(window))
            named[window.name.lower()] = window
        for _ in named:  # a name for a name for a window
            for window in named.values():
                _fill(window, named)
        for window in named.values():
            if window.args.get("alias") is not None:
                raise BindError(f"the window {window.name} is its own name", position=position_of(window))
        select.set("windows", None)
        for window in list(_own(select)):
            _fill(window, named)


def _own(select: exp.Select) -> Iterator[exp.Window]:
    """The windows of a SELECT, without those of its subqueries."""
    for node in select.walk(prune=lambda each: isinstance(each, exp.Query) and each is not select):
        if isinstance(node, exp.Window):
            yield node


def _fill(window: exp.Window, named: Mapping[str, exp.Window]) -> None:
    """Give a window that is a name what that name stands for, which may be a name again."""
    name = window.args.get("alias")
    if name is None:
        return
    if any(window.args.get(part) for part in _PARTS):
        raise UnsupportedError(
            f"({name.name} …) has more than the name of a window",
            hint="write the whole window in its place",
            position=position_of(name),
        )
    found = named.get(name.name.lower())
    if found is None:
        raise BindError(
            f"there is no window {name.name} here",
            hint=did_you_mean(name.name, named) or f"name it after the query: WINDOW {name.name} AS (…)",
            position=position_of(name),
        )
    copied = found.copy()
    for part in ("alias", *_PARTS):
        window.set(part, copied.args.get(part))
