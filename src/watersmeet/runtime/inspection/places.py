"""Where checkpoints are, by the names of their queries, without Spark."""

from __future__ import annotations

from watersmeet.errors import CheckpointError, did_you_mean
from watersmeet.runtime.inspection.files import Files

_PLAN = "plan.json"


def queries_of(folder: str) -> list[str]:
    """The names of the queries with a checkpoint in a folder of checkpoints, such as ``queries`` of a workspace."""
    files = Files(folder)
    return [name for name in files.names() if files.exists(f"{name}/{_PLAN}")]


def checkpoint_of(query: str, folder: str) -> str:
    """The checkpoint of a query in a folder of checkpoints; ``CheckpointError`` if it has none."""
    known = queries_of(folder)
    if query in known:
        return f"{folder.rstrip('/')}/{query}"
    named = ", ".join(known[:5]) + (" …" if len(known) > 5 else "")
    raise CheckpointError(
        f"there is no query {query} in {folder}",
        hint=did_you_mean(query, known) or (f"it has {named}" if known else "no query has run there"),
    )
