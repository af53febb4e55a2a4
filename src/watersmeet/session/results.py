"""The results of statements; notebooks show their ``_repr_html_``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.arrow_rows import ArrowRows
from watersmeet.errors import WatersmeetError
from watersmeet.html import MOST_ROWS, error_part, page_part, paragraph, plain, table
from watersmeet.plan.operator_tree import TreeNode
from watersmeet.plan.tree_picture import tree_picture
from watersmeet.runtime.inspection.selecting import StateRows
from watersmeet.runtime.query import RunningQuery

__all__ = ["Batch", "Message", "Plan", "Result", "Started", "StateRows", "Stream", "Table"]


@dataclass(frozen=True, slots=True)
class Message:
    """One sentence about a statement that was executed."""

    text: str
    """The sentence."""

    def _repr_html_(self) -> str:
        return page_part(paragraph(self.text))


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to print: SHOW, DESCRIBE."""

    columns: tuple[str, ...]
    """The names of the columns."""
    rows: list[tuple[str, ...]]
    """The rows, as texts."""

    def _repr_html_(self) -> str:
        return page_part(table(self.columns, self.rows))


@dataclass(frozen=True, slots=True)
class Plan:
    """The text of EXPLAIN; of a query over streams also its operators, and in a few words what each is."""

    text: str
    """What EXPLAIN prints."""
    tree: TreeNode | None = None
    """The last operator, with those before it; None for a query that Spark carries out."""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """What each operator is, by its name."""

    def picture(self) -> str:
        """Return the operators as an SVG element; empty for a query that Spark carries out."""
        return "" if self.tree is None else tree_picture(self.tree, self._notes)

    def _repr_html_(self) -> str:
        return page_part(f'<div class="scroll">{self.picture()}</div>', plain(self.text))

    def _notes(self, node: TreeNode, _: TreeNode | None) -> Sequence[str]:
        return [self.descriptions[node.name]] if not node.is_source and node.name in self.descriptions else []


@dataclass(frozen=True, slots=True)
class Started:
    """A query that was started."""

    query: RunningQuery
    """The query, to wait for, stop and read counters of."""

    def _repr_html_(self) -> str:
        return self.query._repr_html_()


@dataclass(frozen=True, slots=True)
class Stream:
    """The result of a SELECT: a Spark streaming DataFrame, for any Spark sink."""

    frame: DataFrame
    """The streaming DataFrame."""

    def _repr_html_(self) -> str:
        note = "a streaming DataFrame: .frame.writeStream runs it, and so do INSERT INTO and CREATE STREAM … AS"
        columns = [(column.name, column.dataType.simpleString()) for column in self.frame.schema]
        return page_part(paragraph(note, "dim"), table(("column", "type"), columns))


@dataclass(frozen=True, slots=True)
class Batch(ArrowRows):
    """The result of a SELECT over ``table(…)``: a Spark batch DataFrame over the rows stored when it was created."""

    frame: DataFrame
    """The batch DataFrame."""

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        from watersmeet.session.table_queries import arrow_of  # which needs the streams, and they the results

        return arrow_of(self.frame)

    def _repr_html_(self) -> str:
        from watersmeet.session.table_queries import rows_of

        try:
            return page_part(table(self.frame.columns, rows_of(self.frame.limit(MOST_ROWS + 1))))
        except WatersmeetError as error:  # Spark computes the rows only now
            return error_part(error)


Result: TypeAlias = Message | Table | Plan | Started | Stream | Batch | StateRows
"""What ``Session.sql`` and ``Session.run`` return."""
