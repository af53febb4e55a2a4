"""Random SQL through all that needs no Spark: it is planned and explained, or refused in words.

The same statement written in another way must have the same plan.
"""

from __future__ import annotations

import difflib
import random
import re
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from types import FrameType

from tests.fuzzing.catalog import open_table, streams
from tests.fuzzing.mutations import mutated
from tests.fuzzing.pieces import pieces, plain, variant, with_plain_aliases
from tests.fuzzing.statements import statement
from watersmeet.bind.define import define_stream, define_table, refuse_definitions
from watersmeet.bind.indexes import with_index, without_index
from watersmeet.bind.insert_target import check_target
from watersmeet.bind.planning import plan_query
from watersmeet.bind.statement_sets import plan_set
from watersmeet.bind.table_queries import explain_stored
from watersmeet.catalog.streams import StreamDef
from watersmeet.errors import WatersmeetError
from watersmeet.lookup.tables import table_options
from watersmeet.plan.explain import explain, explain_set
from watersmeet.plan.lineage import derived_stream
from watersmeet.plan.physical_plan import PhysicalPlan
from watersmeet.session.streams import check_connector, check_corrections
from watersmeet.sql.parse import is_complete, parse
from watersmeet.sql.statements import (
    CreateIndex,
    CreateStream,
    CreateTable,
    DropIndex,
    Explain,
    Historical,
    InsertHistorical,
    InsertSelect,
    InsertValues,
    Query,
    Select,
    Statement,
    StatementSet,
)

#: The processor time that a statement may take.
PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a text: the plans of its queries, or the error; ``fault`` says what must not be."""

    plans: tuple[str, ...] = ()
    refusal: WatersmeetError | None = None
    fault: str | None = None


class TooSlowError(BaseException):
    """A statement has taken longer than ``PATIENCE_SECONDS`` of processor time."""


def campaign(first: int, count: int) -> tuple[Counter[str], list[str]]:
    """Try the statements of the seeds from ``first`` on; the counts, and the faults."""
    counts: Counter[str] = Counter()
    faults = [f"seed {seed}: {fault}" for seed in range(first, first + count) for fault in _try(seed, counts)]
    return counts, faults


def _try(seed: int, counts: Counter[str]) -> Iterator[str]:
    rng = random.Random(seed)
    if rng.random() < 0.55:
        text = mutated(rng)
        outcome = tried(text)
    else:
        parts = pieces(statement(rng))
        text = plain(parts)
        outcome = tried(text)
        if outcome.fault is None and rng.random() < 0.2:
            counts["compared"] += 1
            other = variant(parts, rng)
            yield from (f"{fault}\n{text}\n--- as\n{other}" for fault in differences(outcome, tried(other)))
    counts["statements"] += 1
    counts["planned" if outcome.plans else "refused" if outcome.refusal else "carried out"] += 1
    if outcome.fault is not None:
        yield f"{outcome.fault}\n{text[:3000]}"


def tried(text: str) -> Outcome:
    """Carry out a text as far as possible without Spark."""
    try:
        with _limited():
            if len(text) % 8 == 0:  # the shell asks that of what is typed; a part of the texts suffices
                is_complete(text)
            plans = tuple(plan for one in parse(text) for plan in _carried_out(one))
            return Outcome(plans)
    except WatersmeetError as error:
        return Outcome(refusal=error, fault=_wrong_refusal(error, text))
    except TooSlowError:
        return Outcome(fault=f"takes more than {PATIENCE_SECONDS} s\n{traceback.format_exc(limit=-6)}")
    except Exception:  # noqa: BLE001 - that is what this looks for
        return Outcome(fault=traceback.format_exc(limit=-40))


def differences(plain_outcome: Outcome, other: Outcome) -> Iterator[str]:
    """What differs between a statement and its variant."""
    if other.fault is not None:
        yield other.fault
        return
    one, two = _told(plain_outcome), _told(other)
    both_refused = plain_outcome.refusal is not None and other.refusal is not None  # which error comes first may differ
    if one != two and not both_refused:
        changes = list(difflib.unified_diff(one.split("\n"), two.split("\n"), lineterm="", n=0))[2:]
        yield "\n".join(["the plan depends on how the statement is written:", *changes])


def _told(outcome: Outcome) -> str:
    """What EXPLAIN or the error says, without what may differ: parentheses, white space, the text handed to Spark."""
    if outcome.refusal is not None:
        told = f"{type(outcome.refusal).__name__}: {outcome.refusal.message}"
    else:
        told = re.sub(r"Spark SQL:.*", "", "\n".join(outcome.plans), flags=re.DOTALL)
    return re.sub(r"[() ]+", "", with_plain_aliases(told)).casefold()


def _wrong_refusal(error: WatersmeetError, text: str) -> str | None:
    if not error.message.strip() or not str(error):
        return "an error without a message"
    if error.position is not None:
        lines = text.split("\n")
        line, col = error.position.line, error.position.col
        if not (1 <= line <= len(lines) and 1 <= col <= len(lines[line - 1]) + 1):
            return f"{error.position} is not in the text: {error}"
    return None


def _carried_out(statement: Statement) -> Iterator[str]:
    """Do what the session does with a statement; the texts of EXPLAIN."""
    match statement:
        case Select(query=query):
            yield explain(_planned(query))
        case InsertSelect():
            yield explain(_inserted(statement, _planned(statement.query)))
        case StatementSet(inserts=inserts):
            plan = plan_set(statement, streams(), open_table)
            for insert, each in zip(inserts, plan.queries, strict=True):
                _inserted(insert, each)
            yield explain_set(plan, [insert.stream for insert in inserts])
        case Explain(statement=explained):
            yield from _carried_out(explained)
        case Historical(query=stored):
            yield explain_stored(stored, streams())
        case InsertHistorical(query=stored):
            yield explain_stored(stored, streams(), _target(statement))
        case CreateStream(query=Query() as query):
            refuse_definitions(statement)
            plan = _planned(query)
            columns = [(column.name, "string") for column in plan.outputs]
            made = derived_stream(
                statement.name, plan.query, columns, statement.source, options=statement.options or None
            )
            check_connector(made, statement)
            yield explain(plan)
        case _:
            _defined(statement)


def _defined(statement: Statement) -> None:
    """Do what the session does with a statement that has no query."""
    match statement:
        case CreateStream():
            check_connector(define_stream(statement), statement)
        case CreateTable():
            table_options(define_table(statement))
        case CreateIndex(stream=name):
            with_index(_stream(name), statement)
        case DropIndex(stream=name):
            without_index(_stream(name), statement)
        case InsertValues(rows=rows):
            for value in chain.from_iterable(rows):
                value.sql(dialect="spark")
        case _:
            pass


def _planned(query: Query) -> PhysicalPlan:
    return plan_query(query, streams(), open_table)


def _inserted(statement: InsertSelect, plan: PhysicalPlan) -> PhysicalPlan:
    target = _target(statement)
    check_target(target, [column.name for column in plan.outputs], statement)
    check_corrections(target, plan, statement)
    return plan


def _target(statement: InsertSelect | InsertHistorical) -> StreamDef:
    return _stream(statement.stream)


def _stream(name: str) -> StreamDef:
    found = streams().get(name.lower())
    if found is None:
        raise WatersmeetError(f"there is no stream {name}")
    return found


@contextmanager
def _limited() -> Iterator[None]:
    """Raise ``TooSlowError`` after the processor time that a statement may take."""
    before = signal.signal(signal.SIGVTALRM, _raise)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise TooSlowError
