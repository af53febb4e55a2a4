"""``watersmeet state``: what the durable state of queries holds, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.completion import query_names
from watersmeet.cli.parameters import DEFAULT_WORKSPACE, UsageError, Workspace, location, named_place
from watersmeet.cli.row_formats import RowFormat, RowWriter, plain

if TYPE_CHECKING:
    from watersmeet.runtime.inspection.summary import Listing


QueryName = Annotated[
    str | None,
    typer.Argument(
        metavar="QUERY", help="The name of a query; without it, all are listed.", autocompletion=query_names
    ),
]
Folder = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="The folder or URI of a checkpoint, or of a job's checkpoints; by default the workspace.",
    ),
]
Keys = Annotated[int | None, typer.Option("--keys", metavar="N", help="The N keys with the most rows.")]
Key = Annotated[
    list[str] | None,
    typer.Option(
        "--key", metavar="COLUMN=VALUE", help="The rows of a key; a value alone is looked for in any column of it."
    ),
]
Shape = Annotated[RowFormat, typer.Option("--format", help="How the answer is printed.")]


def state(
    query: QueryName = None,
    checkpoint: Folder = None,
    keys: Keys = None,
    key: Key = None,
    format: Shape = RowFormat.TABLE,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show what the state of queries holds, also while they run."""
    from watersmeet.runtime.inspection.summary import describe_state, largest_keys, list_queries, rows_of_key

    if keys is not None and key:
        raise UsageError("--keys and --key exclude each other")
    if keys is not None and keys < 1:
        raise UsageError("--keys takes a number from 1 on")
    folder = checkpoint_folder(query, checkpoint, workspace)
    if folder is None:
        if keys is not None or key:
            raise UsageError("--keys and --key need the name of a query")
        found = list_queries(queries_folder(checkpoint, workspace))
        if not found.rows:
            typer.echo(f"no query has run in {queries_folder(checkpoint, workspace)}", err=True)
        show([found], format)
    elif key:
        show([rows_of_key(folder, key)], format)
    elif keys is not None:
        show([largest_keys(folder, keys)], format)
    else:
        show(describe_state(folder), format)


def queries_folder(checkpoint: str | None, workspace: str) -> str:
    """The folder of checkpoints: that of the job, or that of the workspace."""
    if checkpoint == "":
        raise UsageError("--checkpoint names no folder")
    return location(checkpoint) if checkpoint is not None else location(f"{named_place(workspace)}/queries")


def checkpoint_folder(query: str | None, checkpoint: str | None, workspace: str) -> str | None:
    """The checkpoint that is meant; None if neither a query nor the folder of one is named."""
    from watersmeet.runtime.inspection.files import Files
    from watersmeet.runtime.inspection.places import checkpoint_of

    folder = queries_folder(checkpoint, workspace)
    is_one = checkpoint is not None and Files(folder).exists("plan.json")
    if query is None:
        return folder if is_one else None
    return folder if is_one and folder.rstrip("/").rpartition("/")[2] == query else checkpoint_of(query, folder)


def show(listings: Sequence[Listing], format: RowFormat) -> None:
    """Print tables: one below the other, as one JSON value, or as CSV (the one that tells most)."""
    from watersmeet.cli.rows import out, show_table

    if format is RowFormat.JSON:
        content = {
            each.name: [dict(zip(each.columns, map(plain, row), strict=True)) for row in each.rows] for each in listings
        }
        typer.echo(json.dumps(content, indent=2))
    elif format is RowFormat.CSV:
        chosen = next((each for each in listings if each.name == "relations"), listings[0])
        RowWriter(format).rows(chosen.columns, chosen.rows)
    else:
        for each in listings:
            if len(listings) > 1:
                out().print(each.name)
            show_table(each.columns, each.rows)
