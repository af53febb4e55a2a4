"""A running query as a notebook shows it: its state, its counters, its operators, charts of the last hour, failures."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.html import bar, escaped, page_part, paragraph, plain, rows_text, table
from watersmeet.plan.operator_tree import TreeNode
from watersmeet.plan.tree_picture import tree_picture
from watersmeet.runtime.history_rows import HistoryRows
from watersmeet.runtime.report import OperatorReport
from watersmeet.runtime.run_progress import RunProgress
from watersmeet.runtime.status import QueryStatus


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
        "" if report.progress is None else progress_html(report.progress),
        _failure(status),
        table(tuple(counters), [tuple(counters.values())]),
        f'<div class="scroll">{_tree(status)}</div>',
        HistoryRows(status.history).charts(),
    )


def progress_html(progress: RunProgress) -> str:
    """Return how much of a run is done: a bar, where it is known, and in words what was read."""
    drawn = "" if progress.fraction is None else bar(progress.fraction, progress.text)
    return drawn + paragraph(progress.text, "dim")


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
