"""The store of a real-time query: values of several epochs, and what of its files counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import CheckpointError
from watersmeet.state.epoch_store import EpochStore

CHANGES = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.binary(max_size=8)), max_size=6)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@given(epochs=st.lists(CHANGES, min_size=1, max_size=6))
def test_holds_what_the_last_epoch_left(tmp_path_factory: pytest.TempPathFactory, epochs: list[object]) -> None:
    folder, base, model = tmp_path_factory.mktemp("store"), None, dict[str, bytes]()
    for number, changes in enumerate(epochs):
        store = EpochStore(str(folder), base)
        store.remove_unused()
        for name, value in changes:  # type: ignore[attr-defined]
            if value is None:
                store.delete(name)
                model.pop(name, None)
            else:
                store.put(name, value)
                model[name] = value
        assert {name: store.get(name) for name in "abcd"} == {name: model.get(name) for name in "abcd"}
        base = f"{number:03}"
        store.write(base)
    again = EpochStore(str(folder), base)
    assert {name: again.get(name) for name in "abcd"} == {name: model.get(name) for name in "abcd"}


def test_what_is_not_written_does_not_count(tmp_path: Path) -> None:
    first = EpochStore(str(tmp_path), None)
    first.put("a", b"1")
    first.write("000")
    second = EpochStore(str(tmp_path), "000")
    second.put("a", b"2")
    second.delete("b")
    assert EpochStore(str(tmp_path), "000").get("a") == b"1"


def test_files_go_when_nothing_in_them_is_live(tmp_path: Path) -> None:
    store = EpochStore(str(tmp_path), None)
    store.put("long", b"1")
    store.put("short", b"1")
    store.write("000")
    for number in (1, 2):
        store = EpochStore(str(tmp_path), f"{number - 1:03}")
        store.put("short", b"%d" % number)
        store.write(f"{number:03}")
    EpochStore(str(tmp_path), "002").remove_unused()
    assert names(tmp_path) == ["000", "002"]  # 000 has the value of long, 001 nothing
    # a later file may be that of a run that goes on while this one is abandoned
    EpochStore(str(tmp_path), "000").remove_unused()
    assert names(tmp_path) == ["000", "002"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "is damaged: it has no index"),
        (b"nonsense" * 3, "is damaged: it has no index"),
        (
            b'{"version":9,"values":{}}' + (25).to_bytes(8, "big"),
            "has format 9, this version of Watersmeet reads 1 and 2",
        ),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "000").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        EpochStore(str(tmp_path), "000")


def epochs(folder: Path) -> None:
    store = EpochStore(str(folder), None)
    store.put("a", b"first")
    store.write("000")
    store = EpochStore(str(folder), "000")
    store.put("b", b"second")
    store.write("001")


def test_a_file_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    for bucket in "34":
        epochs(tmp_path / "join_1" / bucket)
    epochs(tmp_path / "join_2" / "3")
    for other in (
        tmp_path / "join_1" / "4" / "001",
        tmp_path / "join_2" / "3" / "001",
        tmp_path / "join_1" / "3" / "000",
    ):
        place = tmp_path / "join_1" / "3" / "001"
        place.write_bytes(other.read_bytes())
        with pytest.raises(CheckpointError, match=f"is damaged: it is {'/'.join(other.parts[-3:])}"):
            EpochStore(str(place.parent), "001")


def test_a_value_that_has_changed_is_refused(tmp_path: Path) -> None:
    epochs(tmp_path)
    old = tmp_path / "000"
    old.write_bytes(old.read_bytes().replace(b"first", b"worst"))
    store = EpochStore(str(tmp_path), "001")
    assert store.get("b") == b"second"
    with pytest.raises(CheckpointError, match="000 is damaged: a value is not what was written"):
        store.get("a")


def test_an_index_that_has_changed_is_refused(tmp_path: Path) -> None:
    epochs(tmp_path)
    new = tmp_path / "001"
    new.write_bytes(new.read_bytes().replace(b'"a":["000"', b'"c":["000"'))
    with pytest.raises(CheckpointError, match="its index is not what was written"):
        EpochStore(str(tmp_path), "001")


def test_a_file_of_format_1_is_read(tmp_path: Path) -> None:
    index = b'{"version":1,"values":{"a":["000",0,5]}}'
    (tmp_path / "000").write_bytes(b"first" + index + len(index).to_bytes(8, "big"))
    store = EpochStore(str(tmp_path), "000")
    assert store.get("a") == b"first"
    store.put("b", b"second")
    store.write("001")
    assert EpochStore(str(tmp_path), "001").get("a") == b"first"
