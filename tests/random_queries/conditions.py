"""Random conditions: keys, windows, residuals and tolerances, as templates over the aliases l and r."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from tests.random_queries.query import Condition, Pick

KEYS = (
    "{l}.id = {r}.id",
    "{r}.id = {l}.id",
    "{l}.k = {r}.k",
    "{l}.id = {r}.id AND {l}.k = {r}.k",
    "{l}.id IS NOT DISTINCT FROM {r}.id",
    "{l}.id = {r}.v + 1",
    "{l}.k IS NOT DISTINCT FROM {r}.k AND {l}.id = {r}.id",
)
RESIDUALS = (
    "{l}.v <= {r}.v",
    "{l}.v <> {r}.v",
    "{l}.v > 1",
    "{r}.v < 3",
    "{r}.v IS NOT NULL",
    "COALESCE({l}.v, {r}.v, 0) > 1",
    "({l}.v = {r}.v OR {l}.k = {r}.k)",
    "{l}.k LIKE {r}.k",
    "CASE WHEN {l}.v > 1 THEN {r}.v ELSE {l}.v END = 2",
    "NOT ({l}.v < {r}.v)",
    "({l}.v IS NULL OR {r}.v IS NULL)",
    "{l}.v IN (1, {r}.v)",
    "{l}.k || {r}.k <> 'xx'",
    "1 = 1",
)
FILTERS = (  # of WHERE
    "{l}.v > 1",
    "{l}.v IS NULL",
    "{l}.v <= {r}.v",
    "{l}.id = {r}.id",
    "COALESCE({l}.v, 0) < 3",
    "{l}.k <> 'x'",
    "({l}.id = 1 OR {r}.id IS NULL)",
    "{l}.ts IS NOT NULL",
    "{l}.ts - {r}.ts > 0",
    "{l}.ts > 5",
)
_ROWS_OWN = (  # windows that rows close for themselves
    "{r}.ts BETWEEN {l}.ts AND {l}.ts + 3 * {l}.v",
    "{l}.ts BETWEEN {r}.ts - {upper} AND {r}.ts + {r}.v",
    "{r}.ts <= {l}.ts + {l}.v AND {l}.ts - 2 * {r}.v < {r}.ts",
    "2 * {r}.ts < {l}.ts + {l}.v + 20 AND {r}.ts >= {l}.ts - {upper}",
    "{r}.ts = {l}.ts + {l}.v AND {r}.ts >= {l}.ts - {upper}",
)
_TOLERANCES = {
    Pick.NEWEST_AT: ("{l}.ts - {r}.ts <= <5>", "{r}.ts >= {l}.ts - <5>"),
    Pick.OLDEST_AT: ("{r}.ts - {l}.ts <= <5>", "{r}.ts <= {l}.ts + <5>"),
    Pick.NEAREST: ("ABS({l}.ts - {r}.ts) <= <5>", "ABS({r}.ts - {l}.ts) < <6>"),
}
_TOLERANCES |= {
    Pick.NEWEST_BEFORE: _TOLERANCES[Pick.NEWEST_AT],
    Pick.OLDEST_AFTER: _TOLERANCES[Pick.OLDEST_AT],
}


def rarely(share: float) -> st.SearchStrategy[bool]:
    """True in a share of cases, and never once a failure has shrunk."""
    return st.integers(0, 99).map(lambda drawn: drawn >= 100 - 100 * share)


@st.composite
def conditions(draw: st.DrawFn, templates: Sequence[str], l: str, r: str) -> Condition:  # noqa: E741
    """One of some templates."""
    return Condition(draw(st.sampled_from(templates)), l, r)


@st.composite
def windows(draw: st.DrawFn, l: str, r: str, *, intervals: bool) -> Condition:  # noqa: E741
    """Bounds of the time between two rows: most on both ends, some on one; perhaps written with INTERVAL."""
    lower = draw(st.sampled_from([0, -1, -5, -10, -20, 2]))
    upper = max(lower, draw(st.sampled_from([0, 1, 5, 10, 20])))
    back = max(-lower, 0)
    templates = (
        f"{{r}}.ts BETWEEN {{l}}.ts {_plus(lower)} AND {{l}}.ts + <{upper}>",
        f"{{l}}.ts - {{r}}.ts <= {-lower} AND {{r}}.ts < {{l}}.ts + <{upper + 1}>",
        f"{{r}}.ts - {{l}}.ts >= {lower} AND {{r}}.ts - {{l}}.ts <= <{upper}>",
        f"abs({{l}}.ts - {{r}}.ts) <= <{upper}>",
        f"abs({{r}}.ts - {{l}}.ts) < <{upper + 1}>",
        "{l}.ts = {r}.ts",
        f"{{l}}.ts >= {{r}}.ts AND {{l}}.ts < {{r}}.ts + <{upper + 1}>",
        f"{{l}}.ts + <{upper}> >= {{r}}.ts AND {{r}}.ts + {back + upper} > {{l}}.ts",
        f"({{l}}.ts <= {{r}}.ts + {upper}) AND NOT ({{l}}.ts < {{r}}.ts - {upper})",
    )
    one_sided = f"{{l}}.ts <= {{r}}.ts {_plus(lower)}"
    rows_own = draw(st.sampled_from(_ROWS_OWN)).replace("{upper}", str(upper))
    if draw(rarely(0.15)):
        return Condition(one_sided if draw(rarely(0.3)) else rows_own, l, r)
    template = draw(st.sampled_from(templates))
    return Condition(template, l, r, intervals=intervals and draw(st.booleans()))


@st.composite
def tolerances(draw: st.DrawFn, pick: Pick, l: str, r: str, *, intervals: bool) -> Condition:  # noqa: E741
    """How far the row that an as-of join picks may lie away."""
    length = draw(st.sampled_from([5, 0, 1, 20]))
    template = draw(st.sampled_from(_TOLERANCES[pick])).replace("<5>", f"<{length}>").replace("<6>", f"<{length + 1}>")
    return Condition(template, l, r, intervals=intervals and draw(st.booleans()))


def _plus(length: int) -> str:
    return f"- <{-length}>" if length < 0 else f"+ <{length}>"
