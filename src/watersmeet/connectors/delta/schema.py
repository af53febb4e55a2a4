"""Whether a Delta table has what a stream declares, and what its columns are called in its files."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.connectors.delta.log import Metadata, physical_names
from watersmeet.engine.parquet import widens
from watersmeet.errors import ConnectorError, did_you_mean
from watersmeet.expressions.type_names import spark_type

#: What a reader of these files can do; the other features change how a table is written, or how its log is stored.
_KNOWN_FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "variantType",
    "variantType-preview",
}


@dataclass(frozen=True, slots=True)
class Declared:
    """The columns that a stream declares of a table, which messages call ``shown``.

    ``changes``: it needs the feed.  At version ``known`` the table had all of them; those that it had not before are
    NULL there.
    """

    columns: pa.Schema
    stream: str
    shown: str
    changes: bool
    known: int

    def check(self, metadata: Metadata, version: int) -> None:
        """Raise ``ConnectorError`` if the stream does not fit the table as it is from a version on."""
        if self.changes and not metadata.has_feed:
            raise ConnectorError(
                f"the Delta table {self.shown} has no change data feed at version {version}, which {self.stream} needs",
                hint="set its property delta.enableChangeDataFeed = true, and begin at that version or later; or leave "
                "out PRIMARY KEY and mode, to read a table that only grows",
            )
        self.names(metadata)
        found = _types(metadata.schema)
        spelt = {name.lower(): name for name in found}
        for field in self.columns:
            if (name := spelt.get(field.name.lower())) is not None:
                self._check_type(name, found[name], field, version)
            elif version >= self.known:
                raise ConnectorError(
                    f"the Delta table {self.shown} has no column {field.name} at version {version}: {self.stream} "
                    "declares one",
                    hint=did_you_mean(field.name, list(found)),
                )

    def check_features(self, features: frozenset[str], version: int) -> None:
        """Raise ``ConnectorError`` for features of the table that are not known here."""
        if unknown := sorted(features - _KNOWN_FEATURES):
            raise ConnectorError(
                f"the Delta table {self.shown} needs a reader that knows {', '.join(unknown)} from version {version} "
                "on",
                hint="turn that off in the table, or read a copy of it",
            )

    def _check_type(self, name: str, kind: pa.DataType | None, field: pa.Field, version: int) -> None:
        is_read = kind is not None and (spark_type(kind) == spark_type(field.type) or widens(kind, field.type))
        if not is_read:
            found = "VARIANT" if kind is None else spark_type(kind)
            raise ConnectorError(
                f"column {name} of the Delta table {self.shown} is {found} at version {version}, but {self.stream} "
                f"declares {spark_type(field.type)}",
                hint="declare the type that the table has, and CAST it in the query",
            )

    def names(self, metadata: Metadata) -> dict[str, str]:
        """Return what declared columns are called in files, where that is another name, by lower-case name.

        Raises ``ConnectorError`` where files are not read by name.
        """
        if metadata.mapping == "none":
            return {}
        if metadata.mapping != "name":
            raise ConnectorError(
                f"the Delta table {self.shown} maps its columns by {metadata.mapping}",
                hint="a table with delta.columnMapping.mode = 'name' can be read: write a copy of this one",
            )
        declared = {field.name.lower(): field.type for field in self.columns}
        for column in json.loads(metadata.schema)["fields"]:
            kind = declared.get(column["name"].lower())
            if kind is not None and pa.types.is_nested(kind):
                raise ConnectorError(
                    f"column {column['name']} of the Delta table {self.shown} has parts, and the table maps its "
                    "columns by name",
                    hint="leave the column out of the stream, or write a copy of the table without column mapping",
                )
        return {name.lower(): physical for name, physical in physical_names(metadata.schema).items()}


def _types(schema: str) -> dict[str, pa.DataType | None]:
    """Return the types of a table's columns; None for a VARIANT, which Arrow does not have."""
    from deltalake.schema import Field, Schema

    found: dict[str, pa.DataType | None] = {}
    for column in json.loads(schema)["fields"]:
        if column["type"] == "variant":
            found[column["name"]] = None
            continue
        plain = {**column, "metadata": {}}
        field = Field.from_json(json.dumps(plain))
        found[column["name"]] = pa.schema(Schema([field]).to_arrow()).field(0).type
    return found
