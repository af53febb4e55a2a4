"""Files that only one may create, on a disk and as on a store; and stores on which that does not hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from watersmeet.errors import ConnectorError
from watersmeet.runtime import storage
from watersmeet.runtime.storage import Storage


class OnStore(Storage):
    """It takes the local disk for a store."""

    def local_path(self, path: str, /) -> str | None:
        return None

    def _file_context(self, path: Any) -> Any | None:
        return None


class OnCarelessStore(OnStore):
    """And for one that replaces files whatever it is asked."""

    def _if_absent(self, target: Any) -> Any:
        return super()._if_absent(target).overwrite(True)


@pytest.fixture(autouse=True)
def unknown_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_refuses", set())


# only real stores refuse the second of two that write at the same time
@pytest.mark.parametrize(("kind", "at_once"), [(Storage, 6), (OnStore, 1)])
def test_one_of_many_creates_a_file(spark: SparkSession, tmp_path: Path, kind: type[Storage], at_once: int) -> None:
    path = f"file:{tmp_path}/folder/file.json"
    texts = [f"text {number}" for number in range(6)]
    with ThreadPoolExecutor(at_once) as pool:
        created = list(pool.map(lambda text: kind(spark).create_text(path, text), texts))
    assert created.count(True) == 1
    assert kind(spark).read_text(path) == texts[created.index(True)]
    assert kind(spark).create_text(path, texts[created.index(True)])  # who asks again has created it
    assert not [each.name for each in (tmp_path / "folder").iterdir() if ".tmp" in each.name and "crc" not in each.name]


def test_a_store_that_replaces_files_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError) as raised:
        OnCarelessStore(spark).create_text(f"file:{tmp_path}/file.json", "text")
    assert raised.value.message == (
        "file:/// cannot hold a workspace: of two sessions that write one file, both succeed"
    )
    assert "If-None-Match" in str(raised.value.hint)
    assert not (tmp_path / "file.json").exists()


def test_on_a_store_a_file_is_written_under_its_own_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hadoop's way to move a file over another one deletes that one first, where moving is copying."""
    path = Storage(spark)._path(f"file:{tmp_path}/file")
    assert Storage(spark)._file_context(path) is not None
    assert {"s3", "s3a", "gs"} <= set(storage._STORES)
    monkeypatch.setattr(storage, "_STORES", ("file",))
    assert Storage(spark)._file_context(path) is None
