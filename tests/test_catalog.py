"""The catalogue: streams by name, and what it says of a file that it cannot read or write."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from watersmeet.catalog.catalog import Catalog
from watersmeet.catalog.streams import StreamColumn, StreamDef, StreamMode
from watersmeet.errors import CatalogError

ORDERS = StreamDef(name="Orders", columns=(StreamColumn(name="id", type="INT"),), definition="CREATE STREAM Orders …")


def refusal(catalog: Catalog) -> str:
    with pytest.raises(CatalogError) as refused:
        catalog.streams()
    return str(refused.value)


def test_streams_are_kept_and_case_does_not_count(tmp_path: Path) -> None:
    assert Catalog(tmp_path / "w").streams() == {}
    assert Catalog(tmp_path / "w").add(ORDERS)
    catalog = Catalog(tmp_path / "w")
    assert catalog.streams() == {"Orders": ORDERS}
    assert catalog.require("ORDERS") == ORDERS
    assert catalog.drop("orders") == ORDERS
    assert catalog.get("Orders") is None


def test_the_same_stream_again_is_no_error(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.add(ORDERS)
    assert not catalog.add(ORDERS.model_copy(update={"definition": "create stream Orders …"}))
    other = ORDERS.model_copy(update={"delay": 5})
    assert not catalog.add(other, if_not_exists=True)
    with pytest.raises(CatalogError, match="there is a stream Orders already"):
        catalog.add(other)
    assert catalog.get("orders") == ORDERS


def test_a_stream_that_is_not_there(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.add(ORDERS)
    for ask in (catalog.require, catalog.drop):
        with pytest.raises(CatalogError) as refused:
            ask("order")
        assert str(refused.value) == "there is no stream order\nhint: did you mean Orders?"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"version": 1, "str', "is not a catalogue: its JSON breaks at line 1, column 16"),
        ("", "is not a catalogue: its JSON breaks at line 1, column 1"),
        ("[" * 100_000, "is not a catalogue: it is nested too deeply"),
        ("[1]", "is not a catalogue: it is not a JSON object"),
        ('{"streams": {}}', "is not a catalogue: it has no version"),
        ('{"version": 1}', "is not a catalogue: streams: Field required"),
        ('{"version": 1, "streams": {}, "tables": {}}', "is not a catalogue: tables: Extra inputs are not permitted"),
        (
            '{"version": 1, "streams": {"o": {"name": "o"}}}',
            "is not a catalogue: streams.o.columns: Field required",
        ),
        ("\udcff", "is not a catalogue: it is not text in UTF-8"),
    ],
)
def test_a_file_that_is_no_catalogue(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "catalog.json"
    path.write_text(content, errors="surrogateescape")
    assert refusal(Catalog(tmp_path)) == (
        f"{path} {reason}\nhint: restore the file from a copy, or move it away and create the streams again"
    )
    with pytest.raises(CatalogError):
        Catalog(tmp_path).add(ORDERS)
    assert path.read_text(errors="surrogateescape") == content


def test_a_catalogue_of_a_later_version(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.write_text('{"version": 5, "streams": []}')
    assert refusal(Catalog(tmp_path)) == (
        f"{path} has format 5, this version of Watersmeet reads formats 1 to 4\n"
        "hint: use the version of Watersmeet that wrote it, or another workspace"
    )


def test_a_catalogue_that_has_changed_is_refused_unless_its_checksum_is_taken_out(tmp_path: Path) -> None:
    path, catalog = tmp_path / "catalog.json", Catalog(tmp_path)
    rates = ORDERS.model_copy(update={"name": "rates", "mode": StreamMode.VERSIONED, "primary_key": ("id",)})
    catalog.add(ORDERS)
    catalog.add(rates)
    assert Catalog(tmp_path).streams() == {"Orders": ORDERS, "rates": rates}
    content = json.loads(path.read_text())
    content["streams"]["rates"]["delay"] = 7
    path.write_text(json.dumps(content))
    assert refusal(Catalog(tmp_path)) == (
        f"{path} is not what was written: its checksum is that of another content\n"
        "hint: restore the file from a copy, or move it away and create the streams again; if you edited it on "
        'purpose, delete the member "checksum" in it'
    )
    del content["checksum"]
    path.write_text(json.dumps(content))
    assert Catalog(tmp_path).require("rates").delay == 7


def test_a_stream_of_an_earlier_version_appends(tmp_path: Path) -> None:
    path = tmp_path / "catalog.json"
    path.write_text('{"version": 1, "streams": {"o": {"name": "o", "columns": []}}}')
    assert not Catalog(tmp_path).require("o").changes


@pytest.mark.parametrize("below", ["", "b"])
def test_a_workspace_that_is_a_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "a").touch()
    catalog = Catalog(tmp_path / "a" / below)
    message = f"the workspace {tmp_path / 'a' / below} is a file, or stands below one"
    assert refusal(catalog).splitlines()[0] == message
    with pytest.raises(CatalogError, match="is a file, or stands below one"):
        catalog.add(ORDERS)


def test_a_file_that_may_not_be_read_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    catalog = Catalog(tmp_path)
    with monkeypatch.context() as patched:  # the tests may run as root, who may read and write everything
        patched.setattr(Path, "read_bytes", refuse)
        assert refusal(catalog).splitlines()[0] == f"{tmp_path}/catalog.json cannot be read: Permission denied"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", refuse)
        with pytest.raises(CatalogError, match=r"catalog.tmp cannot be written: Permission denied"):
            catalog.add(ORDERS)
    (tmp_path / "catalog.json").mkdir()
    assert refusal(catalog).splitlines()[0] == f"{tmp_path}/catalog.json cannot be read: Is a directory"


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_workspace_is_its_owner_s(tmp_path: Path, open_umask: None) -> None:
    workspace = tmp_path / "above" / "workspace"
    Catalog(workspace).add(ORDERS)
    assert (mode(workspace), mode(workspace.parent), mode(workspace / "catalog.json")) == (0o700, 0o755, 0o600)
    workspace.chmod(0o755)  # as earlier versions made it
    (workspace / "queries").mkdir()
    Catalog(workspace).drop("orders")
    assert (mode(workspace), mode(workspace / "queries")) == (0o700, 0o755)


def test_a_folder_that_holds_more_than_the_workspace_stays_open(tmp_path: Path, open_umask: None) -> None:
    workspace = tmp_path / "project"
    (workspace / "out").mkdir(parents=True)
    (workspace / "streams").mkdir()

    def modes() -> tuple[int, int, int]:
        return mode(workspace), mode(workspace / "out"), mode(workspace / "streams")

    Catalog(workspace).add(ORDERS)
    assert modes() == (0o755, 0o755, 0o755)  # whose streams these are is not known yet
    Catalog(workspace).drop("orders")
    assert modes() == (0o755, 0o755, 0o700)
