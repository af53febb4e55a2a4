"""A query that was changed, beside the one that its state was made with: what can go on with that state, and how.

Three ways (docs/design/2026-11-27-replacing-a-query.md has the reasons):

as it is    what is stored has the same meaning: the SELECT list, conditions, the sink, most settings
changed     what is stored is rewritten: another window, more columns or fewer, wider types
anew        what is stored does not tell what the new query would have stored
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum

import pyarrow as pa

from watersmeet.engine.conversion import Columns, Conversion
from watersmeet.engine.specs import InputSpec, OperatorSpec
from watersmeet.kernels.api import EmitMode, Kernel, Side
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import WindowMatch
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.settings.query_settings import QuerySettings


class Way(Enum):
    """How an operator, or a whole query, goes on."""

    AS_IT_IS = "goes on as it is"
    CHANGED = "goes on, with its state changed"
    ANEW = "needs a new version"


@dataclass(frozen=True, slots=True)
class OperatorVerdict:
    """How an operator goes on: what differs, and why it cannot (empty: it can)."""

    name: str
    way: Way
    differences: tuple[str, ...] = ()
    why: str = ""
    conversion: Conversion | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a query goes on.  ``texts`` are differences outside of its operators.

    ``mixes``: results may join rows that came before with rows that came after, under different conditions or columns.
    """

    operators: tuple[OperatorVerdict, ...]
    texts: tuple[str, ...] = ()
    mixes: bool = False

    @property
    def way(self) -> Way:
        """The way of the operator that can do the least."""
        ways = {each.way for each in self.operators}
        return next(way for way in (Way.ANEW, Way.CHANGED, Way.AS_IT_IS) if way in ways)

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return self.way is Way.AS_IT_IS and not self.texts

    @property
    def conversions(self) -> dict[str, Conversion]:
        """What becomes of the rows of operators whose state is changed, by name."""
        return {each.name: each.conversion for each in self.operators if each.conversion is not None}


def verdict_on(
    before: PhysicalPlan, old: Sequence[OperatorSpec], after: PhysicalPlan, new: Sequence[OperatorSpec]
) -> Verdict:
    """Compare two queries; ``old`` and ``new`` are the specs of their operators, over the same buckets."""
    names = [[spec.name for spec in specs] for specs in (old, new)]
    filters = tuple(_filters(before, after))
    texts = (*_texts(before, after), *filters)
    if names[0] != names[1]:
        why = f"its operators were {', '.join(names[0])}, and are {', '.join(names[1])}"
        return Verdict((OperatorVerdict("query", Way.ANEW, (), why),), texts)
    operators = tuple(_operator(*each) for each in zip(old, new, strict=True))
    mixes = bool(filters) or any(_adds(each) for each in operators)
    return Verdict(operators, texts, mixes)


def _adds(operator: OperatorVerdict) -> bool:
    columns = operator.conversion.columns.values() if operator.conversion is not None else ()
    return any(field.name not in each.before for each in columns for field in each.after)


# -- texts -------------------------------------------------------------------------------------------------------------


def _texts(before: PhysicalPlan, after: PhysicalPlan) -> Iterator[str]:
    pairs = list(zip(before.queries, after.queries, strict=False))
    for number, (old, new) in enumerate(pairs, 1):
        which = f"query {number}: " if len(pairs) > 1 else ""
        lists = [", ".join(_items(plan)) for plan in (old, new)]
        if lists[0] != lists[1]:
            yield f"{which}SELECT list: was {lists[0]}; is {lists[1]}"
            if old.weighted:
                yield f"{which}what was emitted before is retracted as the new list has it"
        tests = [_conjunction(plan.post_filters) for plan in (old, new)]
        if tests[0] != tests[1]:
            yield f"{which}conditions over results: were {tests[0]}; are {tests[1]}"
            if old.weighted:
                yield f"{which}what was emitted before is retracted only if it meets the new conditions"
    was, now = before.query.settings, after.query.settings
    for name in QuerySettings.model_fields:
        if getattr(was, name) != getattr(now, name):
            yield f"SETTINGS {name}: was {getattr(was, name)}; is {getattr(now, name)}"


def _items(plan: PhysicalPlan) -> Iterator[str]:
    for each in plan.outputs:
        yield f"{each.expression.sql(dialect='spark')} AS {each.name}"


def _filters(before: PhysicalPlan, after: PhysicalPlan) -> Iterator[str]:
    """Conditions that rows of a stream meet before they are stored."""
    old = {part.input.alias: _conjunction(part.input.filters) for part in before.inputs}
    for part in after.inputs:
        was, now = old.get(part.input.alias), _conjunction(part.input.filters)
        if was is not None and was != now:
            yield f"conditions on rows of {part.input.alias}: were {was}; are {now}"


def _conjunction(conditions: Sequence[object]) -> str:
    return " AND ".join(sorted(each.sql(dialect="spark") for each in conditions)) or "none"  # type: ignore[attr-defined]


# -- operators ---------------------------------------------------------------------------------------------------------


class _AnewError(Exception):
    """What is stored will not do; the text says why."""


def _operator(old: OperatorSpec, new: OperatorSpec) -> OperatorVerdict:
    if old.fingerprint == new.fingerprint:
        return OperatorVerdict(old.name, Way.AS_IT_IS)
    differences: list[str] = []
    try:
        conversion = _conversion(old, new, differences)
    except _AnewError as reason:
        return OperatorVerdict(old.name, Way.ANEW, tuple(differences), str(reason))
    return OperatorVerdict(old.name, Way.CHANGED, tuple(differences or ["which columns it sends on"]), "", conversion)


def _conversion(old: OperatorSpec, new: OperatorSpec, differences: list[str]) -> Conversion:
    if type(old.kernel) is not type(new.kernel):
        raise _AnewError(f"it was a {type(old.kernel).__name__}, and is a {type(new.kernel).__name__}")
    if old.buckets != new.buckets:
        raise _AnewError(f"it had {len(old.buckets)} buckets, and would have {len(new.buckets)}")
    if len(old.inputs) != len(new.inputs):
        raise _AnewError(f"it had {len(old.inputs)} inputs, and has {len(new.inputs)}")
    for number, (was, now) in enumerate(zip(old.inputs, new.inputs, strict=True), 1):
        if (was.source, was.origin) != (now.source, now.origin):
            what = "keys, event time, stream, or conditions on rows that may be retracted"
            raise _AnewError(f"input {number} is made of something else: {what} differ")
    if old.hashed != new.hashed:
        raise _AnewError("its key has other columns or types, and rows would belong to other buckets")
    stores_nothing = old.kernel.homes == {} and new.kernel.homes == {}
    if stores_nothing:
        differences.extend(_schema_differences(old, new))
        return Conversion()
    if isinstance(old.kernel, IntervalJoin) and isinstance(new.kernel, IntervalJoin):
        return _of_window_join(old, new, old.kernel, new.kernel, differences)
    if old.kernel == new.kernel and all(map(_same_rows, old.inputs, new.inputs)):
        differences.append("how far its input lies behind the frontier")
        return Conversion(width=new.kernel.partition_width)
    differences.extend(_schema_differences(old, new))
    raise _AnewError(f"what it stores ({_kernel_name(old.kernel)}) cannot be made into what it would store")


def _same_rows(old: InputSpec, new: InputSpec) -> bool:
    return bool(old.schema.equals(new.schema))


def _kernel_name(kernel: Kernel) -> str:
    return type(kernel).__name__


def _schema_differences(old: OperatorSpec, new: OperatorSpec) -> list[str]:
    found = []
    for was, now in zip(old.inputs, new.inputs, strict=True):
        found += [text for text, _ in _column_changes(was.schema, now.schema)]
    return found


def _column_changes(was: pa.Schema, now: pa.Schema) -> Iterator[tuple[str, bool]]:
    """Yield what differs of each column, and whether stored values can become what they would be."""
    for name in dict.fromkeys((*was.names, *now.names)):
        old, new = (schema.field(name).type if name in schema.names else None for schema in (was, now))
        if old is None:
            yield f"{name} {new} is added", True
        elif new is None:
            yield f"{name} {old} is no longer kept", True
        elif old != new:
            yield f"{name} was {old}, is {new}", is_wider(old, new)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether each value of the old type is one of the new type."""
    if pa.types.is_signed_integer(old) and pa.types.is_signed_integer(new):
        return bool(old.bit_width < new.bit_width)
    if pa.types.is_float32(old) and pa.types.is_float64(new):
        return True
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return False


# -- joins within a window ---------------------------------------------------------------------------------------------


def _of_window_join(
    old: OperatorSpec, new: OperatorSpec, was: IntervalJoin, now: IntervalJoin, differences: list[str]
) -> Conversion:
    if (was.emit, was.gives_ids) != (now.emit, now.gives_ids):
        raise _AnewError("it emits otherwise (FINAL or CHANGELOG), and its state does not tell what it has emitted")
    if type(was.match) is not type(now.match):
        raise _AnewError("what bounds its state is of another kind")
    columns = {}
    for side in Side:
        schemas = [spec.inputs[side.index].schema for spec in (old, new)]
        names = was.match.columns(side).stored, now.match.columns(side).stored
        stored = [pa.schema([schema.field(name) for name in each]) for schema, each in zip(schemas, names, strict=True)]
        for text, can in _column_changes(*stored):
            differences.append(text)
            if not can:
                raise _AnewError(f"{text}: stored values may not fit")
        if was.match.columns(side).condition != now.match.columns(side).condition:
            raise _AnewError("its condition reads other columns")
        columns[side.value] = Columns(names[0], tuple(stored[1]))
    alike = replace(was.match, left=now.match.left, right=now.match.right)
    if type(was.match) is WindowMatch:
        differences.extend(_window_difference(was.match, now.match))
        _check_window(was, now)
        alike = replace(alike, lower=now.match.lower, upper=now.match.upper, slack=now.match.slack)
    if alike != now.match:
        changed = [each.name for each in fields(alike) if getattr(alike, each.name) != getattr(now.match, each.name)]
        raise _AnewError(f"of its condition, {', '.join(changed)} differ")
    return Conversion(columns, now.partition_width)


def _window_difference(was: WindowMatch, now: WindowMatch) -> Iterator[str]:
    if (was.lower, was.upper) != (now.lower, now.upper):
        yield f"the window was {_bounds(was)}, is {_bounds(now)}"


def _bounds(match: WindowMatch) -> str:
    low, high = ("unbounded" if each is None else f"{each:+,}" for each in (match.lower, match.upper))
    return f"[{low}, {high}]"


def _check_window(was: IntervalJoin, now: IntervalJoin) -> None:
    """Raise unless rows that are stored, and rows that have left, allow for the new window."""
    # a side's rows stay until the frontier has passed this bound
    stays = {
        Side.LEFT: (was.match.upper, now.match.upper),
        Side.RIGHT: (_minus(was.match.lower), _minus(now.match.lower)),
    }
    for side, (old, new) in stays.items():
        if old == new:
            continue
        if new is None:
            raise _AnewError("its window has no bound any more, and rows that have left would match for ever")
        is_shorter = old is None or new < old
        if is_shorter and was.emit is EmitMode.FINAL and was.match.kind.emits_unmatched(side):
            raise _AnewError(f"its window is shorter: {side.value} rows that wait for a partner would never be emitted")


def _minus(bound: int | None) -> int | None:
    return None if bound is None else -bound
