"""What a shell completes where a command takes the name of a query."""

from __future__ import annotations

import typer

from watersmeet.cli.parameters import DEFAULT_WORKSPACE, is_uri


def query_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the queries of the workspace, or of the checkpoints, that the command line names; none of a store's."""
    from pathlib import Path

    from watersmeet.runtime.inspection.places import queries_of

    checkpoint = ctx.params.get("checkpoint")
    folder = checkpoint or f"{ctx.params.get('workspace') or DEFAULT_WORKSPACE}/queries"
    if is_uri(folder) or not Path(folder).is_dir():  # a store may take long
        return []
    return [name for name in queries_of(str(Path(folder).absolute())) if name.startswith(incomplete)]
