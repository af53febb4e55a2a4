"""The catalogue on a store: no change is lost, whoever writes at the same time or dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.dying_storage import deaths
from watersmeet.catalog.catalog import Catalog
from watersmeet.catalog.streams import StreamColumn, StreamDef
from watersmeet.errors import CatalogError
from watersmeet.runtime import stored_catalog
from watersmeet.runtime.storage import Storage
from watersmeet.runtime.store_folder import StoreFolder
from watersmeet.runtime.stored_catalog import StoredCatalog


def file_in(folder: Path, storage: Storage) -> StoredCatalog:
    """A catalogue as on a store, on the disk of this machine."""
    return StoredCatalog(StoreFolder(f"file:{folder}", storage))


def stream(name: str) -> StreamDef:
    return StreamDef(name=name, columns=(StreamColumn(name="id", type="INT"),))


def test_what_one_session_writes_another_reads(spark: SparkSession, tmp_path: Path) -> None:
    one, other = (Catalog(file_in(tmp_path, Storage(spark))) for _ in range(2))
    assert one.streams() == {}
    assert one.add(stream("A"))
    assert other.get("a") == stream("A")
    assert not other.add(stream("A"))
    assert [path.name for path in (tmp_path / "catalog").glob("*.json")] == ["000000000000.json"]  # nothing has changed
    other.drop("a")
    assert one.streams() == {}
    with pytest.raises(CatalogError, match="there is no stream A"):
        one.drop("A")


def test_sessions_that_write_at_the_same_time(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        added = pool.map(lambda name: Catalog(file_in(tmp_path, Storage(spark))).add(stream(name)), names)
        assert all(added)
    assert sorted(Catalog(file_in(tmp_path, Storage(spark))).streams()) == names


def test_a_session_may_die_before_any_write(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_catalog, "_KEPT", 1)
    survivor = Catalog(file_in(tmp_path, Storage(spark)))
    survivor.add(stream("first"))
    for writes in deaths(spark, lambda storage: Catalog(file_in(tmp_path, storage)).add(stream("b"))):
        assert sorted(survivor.streams()) in (["first"], ["b", "first"])
        survivor.add(stream(f"after{writes}"))
        survivor.drop(f"after{writes}")
    assert sorted(survivor.streams()) == ["b", "first"]


def test_who_was_slow_beyond_measure_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it stood still, a file of the number that it writes was written and deleted again."""
    monkeypatch.setattr(stored_catalog, "_KEPT", 1)
    quick, file = Catalog(file_in(tmp_path, Storage(spark))), file_in(tmp_path, Storage(spark))
    read = file.read

    def read_and_wait() -> tuple[str, bytes] | None:
        found = read()
        if not quick.streams():
            for name in "abc":
                quick.add(stream(name))
        return found

    monkeypatch.setattr(file, "read", read_and_wait)
    Catalog(file).add(stream("slow"))
    assert sorted(quick.streams()) == ["a", "b", "c", "slow"]


def test_a_catalogue_that_has_changed_on_the_store(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(file_in(tmp_path, Storage(spark)))
    catalog.add(stream("a"))
    (path,) = (tmp_path / "catalog").glob("*.json")
    path.write_text(path.read_text().replace('"INT"', '"BIGINT"'))
    with pytest.raises(CatalogError, match=r"000000000000.json is not what was written: its checksum"):
        catalog.streams()
    path.write_bytes(b"\xff")
    with pytest.raises(CatalogError, match=r"is not a catalogue: .* is not text in UTF-8"):
        catalog.streams()
