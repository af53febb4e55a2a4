"""What cannot run in real time, said before anything starts, with what can."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.catalog.streams import StreamDef
from watersmeet.columns import TP_DELTA
from watersmeet.errors import UnsupportedError
from watersmeet.plan.key_order import keeps_order
from watersmeet.plan.live_checks import INSTEAD
from watersmeet.plan.physical_plan import PhysicalPlan


def check_real_time(plan: PhysicalPlan, target: StreamDef, columns: Sequence[str], *, is_continuous: bool) -> None:
    """Raise ``UnsupportedError`` for targets and ways to run that real time does not have.

    ``columns`` are those of the target that the query fills (empty: all).
    """
    if not is_continuous:
        raise UnsupportedError(
            "a query in real time has no end: --bounded and --drain are for micro-batches", hint=INSTEAD
        )
    if target.derived:
        raise UnsupportedError(
            f"{target.name} (CREATE STREAM … AS) stores the frontier with each batch, and real time has no batches",
            hint=f"INSERT INTO a stream of kafka, and read that; or {INSTEAD}",
        )
    if target.changes and not keeps_order(plan, target, columns):
        key = ", ".join(target.primary_key)
        named = {name.lower() for name in columns or target.primary_key}
        has_key = any(name.lower() in named for name in target.primary_key)
        raise UnsupportedError(
            f"{target.name} takes the changes of a key in their order, but this query sends them from several tasks",
            detail=f"{target.name} has a column {TP_DELTA}" if has_key else f"INSERT INTO names no column of ({key})",
            hint=f"{f'leave {TP_DELTA} out' if has_key else 'name the columns of the key'}; or {INSTEAD}",
        )
