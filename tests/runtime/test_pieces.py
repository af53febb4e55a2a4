"""Which pieces of a folder count, whatever was killed, and that damage is told."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.errors import CheckpointError
from watersmeet.runtime.pieces import End, Piece, Pieces, listing_of

_ROWS = pa.record_batch({"delta": pa.array([1, -1], pa.int8())})


def piece(number: int, run: int, end: End = End.TRANSACTION, position: int = 0, token: str = "") -> Piece:
    return Piece(number, run, token or f"{run:08x}", 2, end, position, 5)


def begin(run: int, number: int) -> str:
    return f"begin-{run:06d}-{run:08x}-{number:012d}"


def numbers(names: list[str]) -> list[tuple[int, int]]:
    return [(each.number, each.run) for each in listing_of(names).pieces]


def test_a_later_run_voids_what_an_earlier_one_still_writes() -> None:
    names = [begin(1, 0), *(piece(each, 1).name for each in range(4)), begin(2, 2), piece(2, 2).name]
    assert numbers(names) == [(0, 1), (1, 1), (2, 2)]
    assert len(listing_of(names).void) == 2
    assert numbers([*names, begin(3, 0), piece(0, 3).name]) == [(0, 3)]


def test_a_run_that_never_began_writes_nothing() -> None:
    assert numbers([begin(1, 0), piece(0, 1).name, piece(1, 1, token="deadbeef").name]) == [(0, 1)]


def test_a_transaction_that_was_not_read_to_its_end() -> None:
    names = [begin(1, 0), piece(0, 1, position=7).name, *(piece(each, 1, End.AMID).name for each in (1, 2))]
    listing = listing_of(names)
    assert [each.number for each in listing.pieces] == [0]
    assert (listing.next_number, listing.position, len(listing.void)) == (1, 7, 2)


def test_when_a_snapshot_is_whole() -> None:
    names = [begin(1, 0), piece(0, 1, End.SNAPSHOT).name]
    assert not listing_of(names).is_complete
    assert listing_of([*names, piece(1, 1, End.LAST_OF_SNAPSHOT).name]).is_complete


def test_runs_in_a_folder(tmp_path: Path) -> None:
    folder = Pieces(str(tmp_path / "pieces"))
    run, token = folder.begin(folder.listing(), 0)
    for number in range(3):
        folder.write_rows(piece(number, run, position=number + 1, token=token), _ROWS)
    folder.note_position(9)
    folder.note_position(12)
    assert (folder.listing().position, folder.listing().next_number) == (12, 3)
    other = folder.begin(folder.listing(), 3)
    assert other != (run, token)
    folder.write_rows(piece(3, run, position=99, token=token), _ROWS)  # the first run, cut off
    assert (folder.listing().position, folder.listing().next_number) == (12, 3)
    folder.write_rows(piece(3, other[0], token=other[1]), _ROWS)
    folder.delete_before(4)
    assert [each.number for each in folder.listing().pieces] == [3]
    folder.begin(folder.listing(), 0)
    assert not folder.listing().pieces
    assert not list((tmp_path / "pieces").glob("*.piece"))


def test_damage_is_told(tmp_path: Path) -> None:
    folder = Pieces(str(tmp_path / "pieces"))
    one = piece(0, 1)
    folder.write_rows(one, _ROWS)
    assert folder.read_rows(one.name).to_pylist() == [{"delta": 1}, {"delta": -1}]
    path = tmp_path / "pieces" / one.name
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match="damaged"):
            folder.read_rows(one.name)
    path.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match="damaged"):
        folder.read_rows(one.name)
    path.unlink()
    with pytest.raises(CheckpointError, match="missing"):
        folder.read_rows(one.name)
