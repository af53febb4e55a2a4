"""``watersmeet rescale``: gives the stopped queries of a job another number of buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.completion import query_names
from watersmeet.cli.parameters import (
    DEFAULT_WORKSPACE,
    STANDARD_INPUT,
    Master,
    Packages,
    UsageError,
    Workspace,
    WorkspaceName,
    location,
    named_place,
    read_script,
    require_local,
)
from watersmeet.cli.run import CheckpointFolder, RealTime
from watersmeet.errors import ConfigError

if TYPE_CHECKING:
    from watersmeet.runtime.rescale.switch import Rescaled

Job = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The job, as it runs: a file of SQL, - for standard input; or a stream that a query feeds."
    ),
]
Buckets = Annotated[int, typer.Option("--buckets", metavar="N", help="How many buckets the queries get (1 to 4096).")]
OneQuery = Annotated[
    str | None,
    typer.Option("--query", metavar="NAME", help="Only the query of this name.", autocompletion=query_names),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")]


def rescale(
    job: Job,
    buckets: Buckets,
    query: OneQuery = None,
    dry_run: DryRun = False,
    real_time: RealTime = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    checkpoint: CheckpointFolder = None,
    packages: Packages = None,
    master: Master = None,
) -> None:
    """Change the number of buckets of stopped queries; their state is kept, and they go on where they stopped."""
    if checkpoint == "":
        raise UsageError("--checkpoint names no folder")
    place = named_place(workspace)
    text = _text_of(job, place)

    from watersmeet.cli.rows import out
    from watersmeet.cli.spark import session_for
    from watersmeet.runtime.rescale.switch import check_count

    check_count(buckets)
    with session_for(text, place, packages, master, real_time=real_time) as session:
        folder = checkpoint and location(checkpoint)
        found = session.rescale(text, buckets, query=query, checkpoint=folder, dry_run=dry_run, real_time=real_time)
        out().print("\n".join(_lines(found, dry_run=dry_run)), soft_wrap=True, markup=False, highlight=False)


def _text_of(job: str, workspace: WorkspaceName) -> str:
    """The SQL of a job: that of a file, or the definition of a stream."""
    if job == STANDARD_INPUT or Path(job).exists():
        return read_script(job)

    from watersmeet.catalog.catalog import Catalog

    workspace = require_local(workspace, "the name of a stream", "name the file of the job")
    streams = {stream.name.lower(): stream for stream in Catalog(workspace).streams().values()}
    stream = streams.get(job.lower())
    if stream is not None and stream.derived:
        return stream.definition
    if stream is None:
        return read_script(job)  # which says that there is no such file
    raise ConfigError(
        f"no query of its own feeds the stream {stream.name}",
        hint="name the file of the job whose INSERT INTO feeds it: a workspace does not keep the texts of such queries",
    )


def _lines(found: Sequence[Rescaled], *, dry_run: bool) -> Iterator[str]:
    for each in found:
        if each.before == each.after:
            yield f"{each.query} has {each.before} buckets already"
            continue
        would = "would have" if dry_run else "has"
        yield f"{each.query} {would} {each.after} buckets, before {each.before}; checkpoint {each.checkpoint}"
        for operator in each.operators:
            buckets = (
                f"{operator.before} buckets, as before" if operator.why else f"{operator.before} → {operator.after}"
            )
            moved = f"{operator.rows:,} rows, {operator.nbytes:,} bytes"
            yield f"  {operator.name}: {buckets}{f' ({operator.why})' if operator.why else ''}; {moved}"
        if not dry_run:
            yield "  the state of before is deleted once a batch with these buckets has been committed"
