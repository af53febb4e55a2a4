"""Windowed joins of which at least one input changes: its rows replace each other, or are retracted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from watersmeet.kernels.api import Side
from watersmeet.kernels.changelog.join import ChangelogJoin
from watersmeet.kernels.changelog.newest import Newest
from watersmeet.kernels.changelog.sides import Change
from watersmeet.plan.explain_phrases import newest_text
from watersmeet.plan.join_context import JoinContext
from watersmeet.plan.join_limits import evicting_refused
from watersmeet.plan.join_ttl import expiring_refused
from watersmeet.plan.logical.tree import Input
from watersmeet.plan.operators.windowed import WindowedOperator, window_match
from watersmeet.plan.physical_plan import Feed

Changes = tuple[Change | Newest, Change | Newest]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogOperator(WindowedOperator):
    """Results are retracted with the rows they are made of."""

    kernel: ChangelogJoin

    @property
    def takes_pieces(self) -> bool:
        """Always: which row of a key holds depends on the rows alone."""
        return True

    def state_text(self, side: Side, reach: str | None, partner: Input) -> str:
        """Without a window: the newest row of each key, or the rows not retracted so far."""
        change = self.kernel.changes[side.index]
        if isinstance(change, Newest):
            return f"{newest_text(change)}, deleted ones too"
        if reach is None and change is Change.RETRACTED:
            return "rows that have not been retracted"
        # named, because slots and zero-argument super() do not go together
        return WindowedOperator.state_text(self, side, reach, partner)

    def passing_text(self) -> str:
        """The newest row of a key is kept even if it passes."""
        if isinstance(self.kernel.changes[Side.LEFT.index], Newest):
            return ", whatever their partners"
        return WindowedOperator.passing_text(self)

    def retraction_texts(self) -> Iterator[str]:
        """At a first partner, and with each row that is retracted."""
        yield from WindowedOperator.retraction_texts(self)
        yield "a result is retracted with the rows it is made of"


def changes_of(context: JoinContext, feeds: Sequence[Feed]) -> Changes | None:
    """How the rows of each side change; None where both only append."""
    left, right = (_change(context, side, feed) for side, feed in zip(Side, feeds, strict=True))
    return None if (left, right) == (Change.APPENDED, Change.APPENDED) else (left, right)


def plan_changelog(context: JoinContext, feeds: Sequence[Feed], changes: Changes) -> ChangelogOperator:
    """The operator of a windowed join with an input that changes."""
    if context.join.condition.ttl is not None:
        raise expiring_refused(context.join, context.query)
    if context.query.settings.limits_joins:
        raise evicting_refused(context.join, context.query)
    match = window_match(context, feeds)
    gives_ids = not context.is_last
    return ChangelogOperator(
        name=context.name,
        kernel=ChangelogJoin(match, changes, gives_ids),
        feeds=tuple(feeds),
        routed_by=context.terms.routes,
        hashed=context.terms.hashed,
        output=match.output,
        single_bucket=context.single_bucket,
        weighted=True,
        gives_ids=gives_ids,
        match=match,
        mirrored=context.join.mirrored,
    )


def _change(context: JoinContext, side: Side, feed: Feed) -> Change | Newest:
    if (newest := context.replaced(side)) is not None:
        return newest
    return Change.RETRACTED if feed.changelog else Change.APPENDED
