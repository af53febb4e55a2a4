"""A folder of the workspace on another file system than the local one, by its URI."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.runtime.storage import Storage

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """A folder on a file system that Spark reaches; ``storage`` does what is done there."""

    uri: str
    storage: Storage

    def __truediv__(self, name: str) -> StoreFolder:
        return StoreFolder(f"{self.uri}/{name}", self.storage)

    def __str__(self) -> str:
        return self.uri


#: Where a workspace, or a part of it, is.
Place = Path | StoreFolder


def place_of(spark: SparkSession, workspace: str | Path) -> Place:
    """The place that a workspace names: a folder on this machine, made absolute, or a URI.

    Raises ``ConfigError`` for a URI that Spark does not reach.
    """
    found = _URI.fullmatch(str(workspace))
    if isinstance(workspace, Path) or found is None:
        return Path(workspace).absolute()
    if found[1].lower() == "file":
        return Path("/" + found[2].lstrip("/")).absolute()
    storage = Storage(spark)
    try:
        uri = storage.uri(str(workspace))
    except WatersmeetError as error:
        raise ConfigError(
            f"{workspace} cannot be the workspace: {error.message}",
            hint="name a folder, or a URI of a store that Spark reaches, such as s3a://BUCKET/FOLDER with hadoop-aws",
        ) from None
    return StoreFolder(uri.rstrip("/"), storage)
