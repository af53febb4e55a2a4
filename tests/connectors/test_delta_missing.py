"""Delta tables of which something is missing, damaged or new: refused in words, and not taken for an end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable as Table

from tests.support.delta_tables import (
    IDS,
    Stream,
    append,
    commit,
    found,
    ids,
    log_of,
)
from watersmeet.connectors.delta.log import DeltaLog
from watersmeet.errors import ConnectorError, OutageError


def test_a_folder_that_is_missing_or_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match="there is no folder T"):
        DeltaLog(str(tmp_path / "none"), "T").about()
    with pytest.raises(ConnectorError, match="T is no Delta table\nhint: connector = 'files'"):
        DeltaLog(str(tmp_path), "T").about()


def test_a_file_that_vacuum_has_removed(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    (file,) = tmp_path.glob("*.parquet")
    file.unlink()
    with pytest.raises(ConnectorError) as raised:
        stream.batch()
    assert raised.value.message == f"version 0 of the Delta table T names a file that is not there: {file}"
    assert "VACUUM has removed it" in str(raised.value.hint)


def test_a_log_that_was_cleaned_up_is_not_taken_for_its_end(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    stream.batch()
    for number in (2, 3, 4):
        append(tmp_path, ids(number), IDS)
    Table(tmp_path).create_checkpoint()
    for version in range(3):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(ConnectorError) as raised:
        stream.batch()
    assert raised.value.message == (
        "the log of the Delta table T has no version 1: the log begins later: it was cleaned up before version 3"
    )
    assert "delta.logRetentionDuration" in str(raised.value.hint)
    assert sorted(found(Stream(tmp_path, IDS).drain())) == [1, 2, 3, 4], "a new query begins with the checkpoint"


def test_a_snapshot_that_is_gone_while_it_is_read(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    for number in (2, 3):
        append(tmp_path, ids(number), IDS)
    Table(tmp_path).create_checkpoint()
    for version in range(2):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(ConnectorError, match="version 0 of the Delta table T cannot be read: ") as raised:
        stream.batch()
    assert "start the query anew" in str(raised.value.hint)


def test_a_table_that_was_deleted_or_made_anew(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(3):
        append(table, ids(number), IDS)
    stream = Stream(table, IDS)
    stream.batch()
    shutil.rmtree(table)
    append(table, ids(9), IDS)
    with pytest.raises(ConnectorError, match="no version 3: nor the one before it: the table was deleted or made anew"):
        stream.batch()
    stream = Stream(table, IDS)
    assert found(stream.batch()) == [9]
    (metadata,) = (each for each in log_of(table, 0) if "metaData" in each)
    metadata["metaData"]["id"] = "4a6b0c52-0000-4000-8000-000000000000"
    commit(table, metadata)
    with pytest.raises(ConnectorError, match="is not the one that the query has read"):
        stream.batch()


def test_a_table_that_was_made_anew_and_has_more_versions_already(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, ids(1), IDS)
    stream = Stream(table, IDS)
    stream.batch()
    shutil.rmtree(table)
    for number in 9, 10:
        append(table, ids(number), IDS)
    with pytest.raises(ConnectorError, match="is not the one that the query has read"):
        stream.batch()


def test_a_version_that_is_cut_off(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    stream.batch()
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text('{"add": {"path"')
    with pytest.raises(ConnectorError, match="version 1 of the Delta table T cannot be read: ") as raised:
        stream.batch()
    assert not isinstance(raised.value, OutageError)


def test_features_that_are_not_known(tmp_path: Path) -> None:
    append(tmp_path, ids(1), IDS)
    stream = Stream(tmp_path, IDS)
    stream.batch()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged", "timestampNtz"]}
    commit(tmp_path, {"protocol": {**protocol, "writerFeatures": []}})
    with pytest.raises(ConnectorError, match="T needs a reader that knows catalogManaged from version 1 on"):
        stream.batch()
