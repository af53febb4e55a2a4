"""Which decoder of the workers goes with a format."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from watersmeet.connectors.formats import Format, format_options
from watersmeet.records.decoder import Decoder
from watersmeet.records.json import json_decoder


def decoder_of(format: str, columns: StructType, options: Mapping[str, str]) -> Decoder | None:
    """Return a decoder for the declared columns; None where only Spark can decode this format, type or option."""
    if format == Format.JSON and not format_options(Format.JSON, options):
        return json_decoder(to_arrow_schema(columns, timezone="UTC"))
    return None
