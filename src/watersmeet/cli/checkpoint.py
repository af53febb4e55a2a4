"""``watersmeet checkpoint``: copies checkpoints, and verifies that they are whole, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.completion import query_names
from watersmeet.cli.parameters import DEFAULT_WORKSPACE, UsageError, Workspace, location
from watersmeet.cli.state import Folder, QueryName, checkpoint_folder, queries_folder

if TYPE_CHECKING:
    from watersmeet.runtime.inspection.verify import Verified

app = typer.Typer(help="Copy and verify checkpoints.", no_args_is_help=True)

Copied = Annotated[str, typer.Argument(metavar="QUERY", help="The name of the query.", autocompletion=query_names)]
Target = Annotated[
    str, typer.Argument(metavar="DEST", help="A folder or URI of checkpoints: the copy is the folder QUERY in it.")
]


@app.command("copy")
def copy(query: Copied, target: Target, checkpoint: Folder = None, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Copy a query's checkpoint, from which it can be started; the query may run meanwhile."""
    from watersmeet.runtime.inspection.copy import copy_checkpoint

    if not target:
        raise UsageError("DEST names no folder")
    folder = checkpoint_folder(query, checkpoint, workspace)
    assert folder is not None  # a query is named
    copied = copy_checkpoint(folder, f"{location(target).rstrip('/')}/{query}")
    typer.echo(
        f"copied {query} as of batch {copied.batch}: {copied.rows:,} rows, {copied.nbytes:,} bytes of state, "
        f"{copied.files:,} files; all verified"
    )
    if copied.planned:
        typer.echo(
            f"batch {copied.batch + 1} was planned and not committed: the copy begins with the same rows", err=True
        )
    typer.echo(f"the copy is {copied.target}; run the job with --checkpoint {target} to go on from there")


@app.command("verify")
def verify(query: QueryName = None, checkpoint: Folder = None, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Read all of a checkpoint, or of all in a workspace, and say what is damaged."""
    from watersmeet.errors import CheckpointError
    from watersmeet.runtime.inspection.places import queries_of
    from watersmeet.runtime.inspection.verify import verify as verified

    folder = checkpoint_folder(query, checkpoint, workspace)
    queries = queries_folder(checkpoint, workspace)
    folders = [folder] if folder is not None else [f"{queries.rstrip('/')}/{name}" for name in queries_of(queries)]
    if not folders:
        raise CheckpointError(
            f"there is no checkpoint in {queries}", hint="name the workspace, or the folder with --checkpoint"
        )
    found = [verified(each) for each in folders]
    for each in found:
        _report(each)
    if any(each.faults for each in found):
        raise typer.Exit(1)


def _report(found: Verified) -> None:
    read = f"{found.files:,} files, {found.nbytes:,} bytes; {found.segments:,} segments, {found.rows:,} rows"
    if not found.faults:
        typer.echo(f"{found.checkpoint} is whole: {read}")
        return
    typer.echo(
        f"{found.checkpoint} is damaged: {len(found.faults)} fault{'s' if len(found.faults) > 1 else ''}; read {read}"
    )
    for fault in found.faults:
        typer.echo(f"  {fault.where}\n    {fault.what}\n    {fault.then}")
