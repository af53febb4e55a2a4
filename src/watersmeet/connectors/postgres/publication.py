"""The publication by which a table's changes are read: made where there is none, and looked at before each run."""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import blake2b

from watersmeet.connectors.postgres.failures import ANEW, failures
from watersmeet.connectors.postgres.server import Server
from watersmeet.connectors.postgres.table import Table
from watersmeet.errors import ConnectorError

_KINDS = ("insert", "update", "delete", "truncate")
_LONGEST = 63
_PUBLICATION = """
SELECT p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,
  (SELECT to_jsonb(t)::text FROM pg_publication_tables t
   WHERE t.pubname = p.pubname AND t.schemaname = %s AND t.tablename = %s)
FROM pg_publication p WHERE p.pubname = %s
"""


def has_publication(server: Server, publication: str, table: Table, *, is_own: bool, has_begun: bool) -> bool:
    """Return whether the publication is there; ``ConnectorError`` where it does not have all changes of the table."""
    what = f"the publication {publication} cannot be looked at"
    found = server.rows(what, _PUBLICATION, table.schema, table.name, publication)
    if not found:
        if is_own and not has_begun:
            return False
        raise ConnectorError(
            f"the database has no publication {publication}" + (": it was dropped" if has_begun else ""),
            hint=f"create it again, then {ANEW}"
            if has_begun
            else f"CREATE PUBLICATION {publication} FOR TABLE {table.full_name}, or leave out the option publication",
        )
    ((*kinds, via_root, text),) = found
    published = None if text is None else json.loads(text)
    lacks = [name for name, has in zip(_KINDS, kinds, strict=True) if not has]
    hint = f"ALTER PUBLICATION {publication} …; if changes were made meanwhile, {ANEW}"
    if table.partitioned and not via_root:
        raise ConnectorError(
            f"the publication {publication} publishes the partitions of {table.full_name}, not the table",
            hint=f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true)",
        )
    if published is None:
        raise ConnectorError(
            f"the publication {publication} does not publish table {table.full_name}",
            hint=f"ALTER PUBLICATION {publication} ADD TABLE {table.full_name}; {hint.partition('; ')[2]}"
            if has_begun
            else f"ALTER PUBLICATION {publication} ADD TABLE {table.full_name}"
            + (f", or DROP PUBLICATION {publication}: it is then created for this table" if is_own else ""),
        )
    if lacks:
        raise ConnectorError(f"the publication {publication} does not publish {', '.join(lacks)}", hint=hint)
    if published.get("rowfilter"):
        raise ConnectorError(
            f"the publication {publication} publishes only some rows of {table.full_name}",
            detail=f"WHERE {published['rowfilter']}",
            hint="publish all of them, and filter in the query",
        )
    names = {each.name for each in table.columns.values()}
    left_out = names - set(published.get("attnames") or names)
    if left_out:
        raise ConnectorError(
            f"the publication {publication} does not publish the columns {', '.join(sorted(left_out))} of "
            f"{table.full_name}",
            hint="publish them, or leave them out of the stream",
        )
    return True


def own_publication(table: Table) -> str:
    """Return the name of the publication that is made for a table; all queries over it share it."""
    name = f"watersmeet_{table.schema}_{table.name}"
    if len(name.encode()) <= _LONGEST and name.isascii():
        return name
    digest = blake2b(table.full_name.encode(), digest_size=8).hexdigest()
    short = "".join(each for each in table.name if each.isascii() and each.isalnum())[:30]
    return f"watersmeet_{short}_{digest}"


def create_publication(server: Server, publication: str, table: Table) -> None:
    """Make a publication of all changes of a table."""
    import psycopg
    from psycopg import sql

    statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish = {}{})").format(
        sql.Identifier(publication),
        sql.Identifier(table.schema, table.name),
        sql.Literal(", ".join(_KINDS)),
        sql.SQL(", publish_via_partition_root = true" if table.partitioned else ""),
    )
    what = f"the publication {publication} of table {table.full_name} cannot be created"
    # another query may have just made it
    with failures(what, server.address), suppress(psycopg.errors.DuplicateObject):
        server.connection.execute(statement)
