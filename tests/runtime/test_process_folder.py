"""Folders for temporary files: removed once their process is gone, and never before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from watersmeet.runtime import process_folder
from watersmeet.runtime.process_folder import remove_abandoned

HOLDER = """
import sys
from watersmeet.runtime.process_folder import new_folder
print(new_folder(), flush=True)
sys.stdin.read()
"""


def holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder below ``parent``, which ends at the end of its input."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={**os.environ, "TMPDIR": str(parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip()).parent


def end(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=60)


def test_only_the_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    killed, gone = holder(tmp_path)
    living, kept = holder(tmp_path)
    try:
        assert gone != kept
        killed.send_signal(signal.SIGKILL)
        end(killed)
        assert gone.is_dir()
        (foreign := tmp_path / "watersmeet-run-abcdefgh").mkdir()  # of another version, which held no lock
        (tmp_path / "watersmeet-run-1-link").symlink_to(foreign)
        remove_abandoned(tmp_path)
        assert (gone.exists(), kept.is_dir(), foreign.is_dir()) == (False, True, True)
        assert kept.stat().st_mode & 0o077 == 0
    finally:
        end(living)
    assert not kept.exists()  # removed by its own process


def test_a_child_that_inherits_the_lock_keeps_the_folder(tmp_path: Path) -> None:
    folder = process_folder.locked_folder(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[folder.lock]) as jvm:
        os.close(folder.lock)
        remove_abandoned(tmp_path)
        assert folder.path.is_dir()
        jvm.communicate(b"\n", timeout=60)
    remove_abandoned(tmp_path)
    assert not folder.path.exists()


def test_another_user_s_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = process_folder.locked_folder(tmp_path)
    os.close(folder.lock)
    monkeypatch.setattr(os, "getuid", lambda: folder.path.stat().st_uid + 1)
    remove_abandoned(tmp_path)
    assert folder.path.is_dir()


def test_a_folder_that_was_removed_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open
    taken: list[Path] = []

    def take(path: Path, flags: int) -> int:
        descriptor = opened(path, flags)
        if not taken:
            taken.append(path)
            path.rmdir()
        return descriptor

    monkeypatch.setattr(os, "open", take)
    folder = process_folder.locked_folder(tmp_path)
    assert folder.path.is_dir()
    assert taken != [folder.path]
