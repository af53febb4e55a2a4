"""The wheel and the source distribution: what is in them, and that they work where nothing else is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 600
JOB = """
CREATE STREAM orders (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
CREATE STREAM payments (id INT, ts TIMESTAMP, WATERMARK FOR ts AS ts);
INSERT INTO orders VALUES (1, TIMESTAMP'2026-01-01 10:00:00'), (2, TIMESTAMP'2026-01-01 10:00:00');
INSERT INTO payments VALUES (1, TIMESTAMP'2026-01-01 10:00:03');
SELECT o.id, p.id AS paid FROM orders o LEFT JOIN payments p ON o.id = p.id WITHIN INTERVAL '5' SECONDS EMIT FINAL;
"""
IMPORTS_ALL = """
import importlib, pkgutil, watersmeet
names = [each.name for each in pkgutil.walk_packages(watersmeet.__path__, "watersmeet.")]
for name in names:
    importlib.import_module(name)
print(len(names), watersmeet.__file__)
"""


def run(*command: str | Path, folder: Path = ROOT, code: int = 0) -> str:
    """What a command prints, which ends with an exit code; it sees nothing of this process's Python."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@dataclass(frozen=True, slots=True)
class Built:
    """The two files."""

    wheel: Path
    source: Path

    def files(self) -> set[str]:
        """The paths of the wheel's files."""
        with zipfile.ZipFile(self.wheel) as opened:
            return set(opened.namelist())


def build(source: Path, folder: Path) -> Built:
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, folder=source)
    return Built(next(folder.glob("*.whl")), next(folder.glob("*.tar.gz")))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def extras(built: Built) -> Sequence[str]:
    with zipfile.ZipFile(built.wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        return message_from_string(opened.read(name).decode()).get_all("Provides-Extra", [])


def test_the_wheel_has_the_package_and_nothing_else(built: Built) -> None:
    sources = (path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {path.relative_to(ROOT / "src").as_posix() for path in sources}
    assert {name for name in built.files() if ".dist-info/" not in name} == expected
    assert {"watersmeet/py.typed", "watersmeet/demo/demo.sql"} <= expected


def test_the_source_distribution_builds_the_same_wheel_and_brings_its_tests(built: Built, tmp_path: Path) -> None:
    with tarfile.open(built.source) as opened:
        opened.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    assert build(root, tmp_path / "again").files() == built.files()
    for name in "Makefile", "requirements.lock", "scripts/setup.sh", "tests/distribution/test_packages.py":
        assert (root / name).is_file()


def test_extras_that_texts_and_errors_name_are_there(extras: Sequence[str]) -> None:
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    named = {
        extra.strip()
        for text in texts
        for group in re.findall(r"pip install '\.\[([\w, -]+)\]'", text.read_text())
        for extra in group.split(",")
    }
    named |= {
        extra
        for text in texts
        for extra in re.findall(r'require_extra\(\s*"(\w+)"|extra = "(\w+)"', text.read_text())
        for extra in extra
        if extra
    }
    assert named <= set(extras)
    assert {"jdbc", "mysql", "delta", "ui", "polars"} <= named


# -- in a clean environment --------------------------------------------------------------------------------------------


def installed(folder: Path, wheel: Path, extras: Sequence[str] = ()) -> Path:
    """Install the wheel into a new environment, by the versions of requirements.lock; its ``bin`` comes back."""
    venv.create(folder, with_pip=True)
    pins = re.findall(r"^([\w.\[\]-]+==\S+(?: ; .*?)?) *\\?$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (folder / "pins.txt").write_text("\n".join(re.sub(r"\[.*?\]", "", pin) for pin in pins))
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--constraint", folder / "pins.txt", wanted)
    return programs


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_extras(built: Built, tmp_path: Path) -> None:
    programs = installed(tmp_path / "venv", built.wheel)
    assert run(programs / "watersmeet", "--version", folder=tmp_path).startswith("watersmeet 0.")
    case = ROOT / "tests" / "cases" / "using.wmt"
    assert " passed" in run(programs / "watersmeet", "test", case, folder=tmp_path)
    (tmp_path / "job.sql").write_text(JOB)
    said = run(programs / "watersmeet", "run", "--bounded", "job.sql", folder=tmp_path)
    assert re.search(r"\b1\b.*\b1\b", said)
    assert re.search(r"\b2\b.*NULL", said)
    said = run(programs / "watersmeet", "run", "--ui", "--bounded", "job.sql", folder=tmp_path, code=1)
    assert "pip install '.[ui]'" in said
    (tmp_path / "lookup.sql").write_text(
        "CREATE TABLE t (id INT) WITH (connector = 'jdbc', url = 'jdbc:mysql://127.0.0.1:1/x', table = 't');"
        "SELECT o.id FROM orders o JOIN t FOR SYSTEM_TIME AS OF PROCTIME() ON o.id = t.id"
    )
    said = run(programs / "watersmeet", "run", "--bounded", "lookup.sql", folder=tmp_path, code=1)
    assert "pip install '.[mysql]'" in said


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_every_extra(built: Built, extras: Sequence[str], tmp_path: Path) -> None:
    programs = installed(tmp_path / "venv", built.wheel, extras)
    said = run(programs / "python", "-W", "ignore", "-c", IMPORTS_ALL, folder=tmp_path)
    assert str(tmp_path / "venv") in said
    (tmp_path / "job.sql").write_text(JOB)
    said = run(programs / "watersmeet", "run", "--ui", "--bounded", "job.sql", folder=tmp_path)
    assert "http://127.0.0.1:" in said
    assert re.search(r"\b2\b.*NULL", said)
