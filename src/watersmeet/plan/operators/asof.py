"""Joins as of a time: ASOF JOIN, and FOR SYSTEM_TIME AS OF over a stream of versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.event_time import span_text
from watersmeet.expressions.text import plain_sql
from watersmeet.kernels.api import EmitMode, JoinKind, Side
from watersmeet.kernels.asof.at_once import AsofAtOnce
from watersmeet.kernels.asof.changelog import AsofChangelog
from watersmeet.kernels.asof.final import AsofJoin
from watersmeet.kernels.asof.match import AsofMatch, Direction, VersionTimes, with_times
from watersmeet.plan.emission import emits_at_once, waits_for_table
from watersmeet.plan.explain_phrases import input_of, key_lines, plain_condition, plain_name, written_column
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.logical.tree import NO_GRACE, AsofClause, Input
from watersmeet.plan.operators.version_rules import declared_keys, usable_index
from watersmeet.plan.physical_plan import Feed, PhysicalOperator, PhysicalPlan
from watersmeet.plan.table_retention import SETTING

AsofKernel = AsofJoin | AsofAtOnce | AsofChangelog

_PICKED = {
    Direction.BACKWARD: "the newest {right} at or before {left}",
    Direction.FORWARD: "the oldest {right} at or after {left}",
    Direction.NEAREST: "the {right} nearest to {left}, of two the earlier",
    Direction.CURRENT: "the newest {right} known when the row arrives",
}
_PICKED_STRICTLY = {
    Direction.BACKWARD: "the newest {right} before {left}",
    Direction.FORWARD: "the oldest {right} after {left}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AsofOperator(PhysicalOperator):
    """A left row matches one right row of its key.

    ``access`` says how that row is found where a table is joined by other columns than its primary key; ``asks_for``
    is the time of the version that a left row asks for.
    """

    kernel: AsofKernel
    access: str
    asks_for: str

    @property
    def takes_pieces(self) -> bool:
        """Always."""
        return True

    def cut_by(self, number: int, *, is_of_results: bool) -> tuple[str, ...] | None:
        """The key, where results are revised: each step revises those of all its keys."""
        if isinstance(self.kernel, AsofChangelog) and (keys := self.kernel.match.keys):
            return tuple(key.of(tuple(Side)[number]) for key in keys)
        # named, because slots and zero-argument super() do not go together
        return PhysicalOperator.cut_by(self, number, is_of_results=is_of_results)

    @property
    def taken_last(self) -> tuple[int, ...]:
        """Left rows, where one is joined with the versions known when it arrives: those of its batch come first."""
        comes_last = isinstance(self.kernel, AsofAtOnce) or self.kernel.match.direction is Direction.CURRENT
        return (Side.LEFT.index,) if comes_last else ()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Left rows, where a frontier alone says when they are final; those due by the right one come at once."""
        waits = isinstance(self.kernel, AsofJoin) and self.kernel.match.direction is Direction.BACKWARD
        return (Side.LEFT.value,) if waits else ()

    def explain(self, plan: PhysicalPlan) -> Iterator[str]:
        """Kind, keys, which row is picked, and what bounds the state of each side."""
        match = self.kernel.match
        left, right = (input_of(feed.times[0], plan) for feed in self.feeds)
        yield (
            f"{self.name}: {'left' if match.outer else 'inner'} join as of a time, {self._results()}, "
            f"{'one bucket (no key from the primary key)' if self.single_bucket else 'by key hash'}"
        )
        yield from key_lines(match.keys)
        if right.versions_of is not None and match.direction in (Direction.BACKWARD, Direction.CURRENT):
            yield f"  versions of {_entity(right)}, by {written_column(right, right.time.column)}"
        ties = "the last in its source" if match.versions.sequence else "the one with the greatest values"
        yield f"  partner{_each(match, right)}: {_picked(match, self.asks_for, left, right)}; ties: {ties}"
        if not match.key_is_complete:
            yield f"  found by {self.access}"
        if match.versions.weight is not None:
            yield f"  deletes: {_deletes(match)}"
        if match.residual is not None:
            yield f"  tested on that row: {plain_condition(match.residual)}"
        yield f"  state of the left side: {self._left_state(left, right)}"
        yield f"  state of the right side: {_right_state(match, self.asks_for, right)}"
        if match.times.corrected != 0 and match.direction is Direction.BACKWARD:
            yield f"  changes of {right.alias} correct results {_age(match.times.corrected, right)}"

    def _left_state(self, left: Input, right: Input) -> str:
        kernel, times, direction = self.kernel, self.kernel.match.times, self.kernel.match.direction
        if isinstance(kernel, AsofAtOnce):
            return "none"
        changes = isinstance(kernel, AsofChangelog) and kernel.left_changes
        frontier = "the frontier"
        if times.in_order and not changes:
            frontier = f"the frontier of {right.alias}{', which comes in order,' if right.results is None else ''}"
        waits = f"until {frontier} has passed {'them' if times.asked is None else self.asks_for}"
        if changes and times.asked is not None:
            waits = "until they are retracted"
        elif times.corrected != 0:
            waits = _age(times.corrected, right)
        elif direction in (Direction.FORWARD, Direction.NEAREST):
            tolerance = kernel.match.tolerance
            end = "without end" if tolerance is None else f"at most {span_text(tolerance, left.time.unit)} longer"
            waits = f"until their partner lies behind the frontier, {end}"
        if isinstance(kernel, AsofChangelog):
            return f"rows and their results are kept {waits}, for corrections"
        return f"rows wait {waits}"

    def _results(self) -> str:
        match self.kernel:
            case AsofAtOnce():
                return "at once and never revised"
            case AsofChangelog():
                return "EMIT CHANGELOG"
            case AsofJoin():
                return "EMIT FINAL"


def plan_asof(context: JoinContext, feeds: Sequence[Feed]) -> AsofOperator:
    """The operator of a join as of a time."""
    match = _match(context, feeds)
    _check_retractions(context, match, left_changes=feeds[0].changelog)
    kernel = _kernel(context, match, left_changes=feeds[0].changelog)
    is_changelog = isinstance(kernel, AsofChangelog)
    return AsofOperator(
        name=context.name,
        kernel=kernel,
        feeds=tuple(feeds),
        routed_by=context.terms.routes,
        hashed=context.terms.hashed,
        output=(*match.left.output, *match.right.output),
        single_bucket=context.single_bucket,
        weighted=is_changelog,
        gives_ids=isinstance(kernel, AsofChangelog) and kernel.gives_ids,
        access=_access(context),
        asks_for=_asks_for(context),
    )


def _check_retractions(context: JoinContext, match: AsofMatch, *, left_changes: bool) -> None:
    asked = match.times.asked
    if left_changes and asked is not None and not asked.fixed and match.times.kept is not None:
        raise UnsupportedError(
            f"{SETTING}: rows of the left side may be retracted, and the version that such a row asked for may be gone",
            hint="leave it out: all versions are kept, up to join_max_buffered_bytes",
            position=context.query.text.settings_positions.get(SETTING, context.join.position),
        )


def _match(context: JoinContext, feeds: Sequence[Feed]) -> AsofMatch:
    asof = context.join.asof
    assert asof is not None
    match = AsofMatch(
        left=context.side_columns(Side.LEFT, feeds[0]),
        right=context.side_columns(Side.RIGHT, feeds[1]),
        keys=context.terms.keys,
        versions=context.versions(),
        direction=asof.direction,
        strict=asof.strict,
        tolerance=asof.tolerance,
        outer=context.join.kind is JoinKind.LEFT,
        residual=context.residual_sql(),
    )
    return with_times(match, _version_times(context, asof))


def feed_of_versions(context: JoinContext, asof: AsofClause, feed: Feed) -> Feed:
    """The feed of the right side: whether it holds back the frontier, and which of its rows are late."""
    if not waits_for_table(context.query, asof):  # they are late by their own frontier
        return replace(feed, holds_back=False)
    times = _version_times(context, asof)
    return replace(feed, retention=times.corrected, late_by_own=times.in_order)


def _version_times(context: JoinContext, asof: AsofClause) -> VersionTimes:
    """Which versions of the right side are asked for, and how long they may change."""
    corrected = asof.corrected if context.emission.mode is EmitMode.CHANGELOG else 0
    is_in_order = asof.in_order and asof.direction is Direction.BACKWARD and waits_for_table(context.query, asof)
    return VersionTimes(
        asked=context.asked(),
        kept=asof.kept,
        corrected=corrected,
        in_order=is_in_order and corrected == 0 and context.join.condition.grace == NO_GRACE,
    )


def _kernel(context: JoinContext, match: AsofMatch, *, left_changes: bool) -> AsofKernel:
    asof = context.join.asof
    assert asof is not None
    if emits_at_once(context.query, asof) and not left_changes:
        return AsofAtOnce(match, f"behind.{context.query.inputs[asof.right].alias}")
    if context.emission.mode is EmitMode.CHANGELOG:
        return AsofChangelog(match, left_changes, gives_ids=left_changes or not context.is_last)
    return AsofJoin(match)


def _asks_for(context: JoinContext) -> str:
    asof = context.join.asof
    assert asof is not None
    if asof.at is not None:
        return plain_sql(asof.at)
    left = context.query.inputs[asof.left]
    return f"{left.alias}.{left.time.column}"


def _access(context: JoinContext) -> str:
    """How rows of a table are found that is joined by other columns than its key."""
    assert context.join.asof is not None
    right = context.query.inputs[context.join.asof.right]
    names = declared_keys(context.join, context.sources.columns)
    if (used := usable_index(right, names)) is not None:
        return f"index {used.name} ({', '.join(used.columns)})"
    if not names:
        return "reading all versions: no column of the table stands in the key"
    if not right.stream.changes:
        return f"reading all versions: an equality with each of {_entity(right)} would find them"
    return f"reading all versions; CREATE INDEX … ON {right.stream.name} ({', '.join(names)}) would find them"


def _each(match: AsofMatch, right: Input) -> str:
    if match.key_is_complete:
        return ""
    names = map(plain_name, match.versions.by)
    return f" for each {', '.join(names) if right.versions_of is None else _entity(right)}"


def _entity(right: Input) -> str:
    """What rows are versions of."""
    names = [written_column(right, name) for name in right.versions_of or ()]
    return ", ".join(names) or "one row"


def _picked(match: AsofMatch, asks_for: str, left: Input, right: Input) -> str:
    names = {"left": asks_for, "right": written_column(right, right.time.column)}
    picked = (_PICKED_STRICTLY if match.strict else _PICKED)[match.direction].format(**names)
    if match.direction is Direction.CURRENT:
        return picked if match.times.corrected == 0 else f"the newest {names['right']} known; results follow it"
    reach = "any distance" if match.tolerance is None else f"at most {span_text(match.tolerance, left.time.unit)} away"
    return f"{picked}, {reach}"


def _deletes(match: AsofMatch) -> str:
    versions = match.versions
    taken = "at the time of a version takes it away" if versions.takes_away else ""
    ended = "ends validity from its time on" if versions.ends else ""
    if taken and ended:
        return f"-1 {taken}, at any other time it {ended}"
    return f"-1 {taken or ended}"


def _age(span: int | None, input: Input) -> str:
    return "without end" if span is None else f"up to {span_text(span, input.time.unit)} behind the frontier"


def _right_state(match: AsofMatch, asks_for: str, right: Input) -> str:
    times = match.times
    if times.asked is not None and times.asked.fixed:
        behind = f"{_age(times.kept, right)} has" if times.kept else "has"
        return f"rows up to {asks_for}; of each key the newest, once the frontier {behind} passed it"
    if times.kept is None:
        return "all rows: they may be asked for"
    which = "its own frontier" if match.direction is Direction.CURRENT else "the frontier"
    if times.kept:
        since = f"{span_text(times.kept, right.time.unit)} behind {which}"
        return f"rows from {since} on, and of each key the newest before that"
    return f"rows from {which} on" + (
        "" if match.direction is Direction.FORWARD else ", and of each key the newest behind it"
    )
