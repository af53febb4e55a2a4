"""``watersmeet replace``: lets the stopped queries of a job go on as changed ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from watersmeet.cli.parameters import (
    DEFAULT_WORKSPACE,
    Master,
    Packages,
    UsageError,
    Workspace,
    location,
    named_place,
    read_script,
)
from watersmeet.cli.rescale import DryRun, OneQuery
from watersmeet.cli.run import CheckpointFolder, RealTime, Script

if TYPE_CHECKING:
    from watersmeet.runtime.replace.switch import Replaced
    from watersmeet.session.replacing import JobReplaced

Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Begin a new version: with empty state where the old one stands (stored), or with the rows that sources"
        " still have (beginning, or a time).",
    ),
]
AcceptCounts = Annotated[
    bool, typer.Option("--accept-counts", help="Replace also where the new version has read other numbers of rows.")
]


def replace(
    script: Script,
    query: OneQuery = None,
    dry_run: DryRun = False,
    start: Start = None,
    accept_counts: AcceptCounts = False,
    real_time: RealTime = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
    checkpoint: CheckpointFolder = None,
    packages: Packages = None,
    master: Master = None,
) -> None:
    """Let stopped queries go on as those of a changed job: with their state where it fits, else as new versions."""
    if checkpoint == "":
        raise UsageError("--checkpoint names no folder")
    place = named_place(workspace)
    text = read_script(script)

    from watersmeet.cli.rows import out
    from watersmeet.cli.spark import session_for
    from watersmeet.runtime.replace.switch import check_start

    check_start(start)
    with session_for(text, place, packages, master, real_time=real_time) as session:
        found = session.replace(
            text,
            query=query,
            checkpoint=checkpoint and location(checkpoint),
            start=start,
            accept_counts=accept_counts,
            dry_run=dry_run,
            real_time=real_time,
        )
        out().print("\n".join(lines(found, dry_run=dry_run)), soft_wrap=True, markup=False, highlight=False)


def lines(found: JobReplaced, *, dry_run: bool) -> Iterator[str]:
    """What was done, or would be."""
    for definition in found.definitions:
        yield f"{definition}{'' if dry_run else '; the catalogue says so now'}"
    for each in found.queries:
        yield from _of_query(each, dry_run=dry_run)


def _of_query(found: Replaced, *, dry_run: bool) -> Iterator[str]:
    from watersmeet.engine.time_texts import time_text
    from watersmeet.plan.replacing import Way

    verdict = found.verdict
    if found.is_new_version:
        how = "would get a new version" if verdict.way is not Way.ANEW else Way.ANEW.value
        yield f"{found.query} {how if dry_run else 'has a new version'}; checkpoint {found.checkpoint}"
    else:
        same = verdict.is_same
        yield f"{found.query} {'is as it was' if same else verdict.way.value}; checkpoint {found.checkpoint}"
    for text in verdict.texts:
        yield f"  {text}"
    for operator in verdict.operators:
        if operator.way is Way.AS_IT_IS:
            continue
        yield f"  {operator.name} {operator.way.value}{f': {operator.why}' if operator.why else ''}"
        for difference in operator.differences:
            yield f"    {difference}"
    if found.is_new_version:
        yield from _of_new_version(found, dry_run=dry_run)
    elif found.complete_after is not None:
        yield f"  complete for rows with an event time after {time_text(found.complete_after, found.scale)}"
    elif verdict.mixes or verdict.way is Way.CHANGED:
        yield "  rows from before stay as they were stored: what is changed holds for rows that come from now on"


def _of_new_version(found: Replaced, *, dry_run: bool) -> Iterator[str]:
    if found.counts is not None:
        for line in found.counts.lines():
            yield f"  {line}"
    if dry_run:
        yield "  --from stored: empty state, where the old one stands; results join rows that come from now on alone"
        yield "  --from beginning, or a time: reads what the sources still have; results begin where the old ones end"
