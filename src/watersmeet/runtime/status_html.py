"""A running query as a notebook shows it: its state, its counters, its operators, rows of the last hour, failures."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.html import escaped, page_part, paragraph, plain, rows_text, table
from watersmeet.plan.operator_tree import TreeNode
from watersmeet.plan.tree_picture import tree_picture
from watersmeet.runtime.history import SLOT_SECONDS, SLOTS, Slot
from watersmeet.runtime.report import OperatorReport
from watersmeet.runtime.status import QueryStatus

_CHART_WIDTH, _CHART_HEIGHT = 480, 60


def status_html(status: QueryStatus) -> str:
    """Return the HTML of a query's status."""
    report = status.report
    mode = "in real time" if status.is_real_time else status.mode
    into = ", ".join(f"into {target}" for target in status.targets)
    furthest = max(report.operators.values(), key=lambda each: each.lag or 0, default=OperatorReport())
    counters = {
        "batches": report.batches,
        "rows in": sum(report.rows_in.values()),
        "rows out": report.rows_out,
        "late": sum(report.late.values()),
        "quarantined": sum(report.quarantined.values()),
        "state rows": report.state_rows,
        "state bytes": report.state_bytes,
        "lag": furthest.lag_text or None,
    }
    return page_part(
        f"<p><b>{escaped(status.name)}</b> "
        f'<span class="pill {status.state.value}">{status.state.value}</span> '
        f'<span class="dim">{escaped(", ".join(filter(None, [mode, into])))}</span></p>',
        paragraph(report.waiting) if report.waiting else "",
        _failure(status),
        table(tuple(counters), [tuple(counters.values())]),
        f'<div class="scroll">{_tree(status)}</div>',
        _chart(status.history.slots),
    )


def _failure(status: QueryStatus) -> str:
    """The failure that ended the query, or the last one that it survived."""
    if not status.history.failures:
        return ""
    last = status.history.failures[-1]
    went_on = "\n(the query went on)" if last.went_on else ""
    return plain(f"{last.kind}: {last.message}{went_on}", "error")


def _tree(status: QueryStatus) -> str:
    operators = {each.name: each for each in status.operators}

    def notes(node: TreeNode, above: TreeNode | None) -> Sequence[str]:
        if node.is_source:
            sides = operators[above.name].report.rows_in if above is not None and above.name in operators else {}
            return [f"{rows_text(sides.get(node.counted_as, 0))} in"]
        own = operators[node.name]
        counts = f"{own.rows_in:,} in, {own.report.results:,} out"
        return [counts, f"{rows_text(own.report.state_rows)} of state", *filter(None, [own.description])]

    return tree_picture(status.tree, notes)


def _chart(slots: Sequence[Slot]) -> str:
    """Rows in a second as a line, over the last hour at most; nothing before there are two slots."""
    rates = _rates(slots)
    if len(rates) < 2:
        return ""
    most = max(rates)
    points = "L".join(
        f"{_CHART_WIDTH * number / (len(rates) - 1):.1f} {1 + (_CHART_HEIGHT - 2) * (1 - rate / (most or 1)):.1f}"
        for number, rate in enumerate(rates)
    )
    label = f"rows in a second, over {len(rates) * SLOT_SECONDS} s; at most {most:,.1f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" width="{_CHART_WIDTH}" '
        f'height="{_CHART_HEIGHT}"><title>{label}</title><path d="M{points}"/></svg>{paragraph(label, "dim")}'
    )


def _rates(slots: Sequence[Slot]) -> list[float]:
    """The rate of each slot up to the last one, and 0 in those between in which no batch ended."""
    if not slots:
        return []
    by_began = {slot.began: slot.rows_in / SLOT_SECONDS for slot in slots}
    end = slots[-1].began + SLOT_SECONDS
    return [
        by_began.get(began, 0.0) for began in range(max(slots[0].began, end - SLOTS * SLOT_SECONDS), end, SLOT_SECONDS)
    ]
