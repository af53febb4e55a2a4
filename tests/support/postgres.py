"""A real PostgreSQL server on loopback for tests, from the system's packages.

The server is looked for where the system's packages put it; where there is none, Debian's packages are unpacked into a
folder beside the system's other temporary ones, and stay there for the next run.  PostgreSQL refuses to run as root:
then an unprivileged user of the system runs it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.debian import ServerNotFoundError, free_port, output_of, unpacked, unprivileged_user, with_libraries

START_SECONDS = 30.0
STOP_SECONDS = 15.0
_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
)


def find_programs() -> Path:
    """The folder of ``initdb`` and ``postgres``, of the newest version there is, else of a downloaded one.

    Raises ``ServerNotFoundError`` where none can be had.
    """
    found = [
        path for pattern in _FOLDERS for path in Path("/").glob(pattern.lstrip("/")) if (path / "postgres").exists()
    ]
    if found:
        return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", str(path))])
    on_path = shutil.which("postgres")
    return download_programs() if on_path is None else Path(on_path).resolve().parent


def download_programs() -> Path:
    """The programs from Debian's packages, unpacked in a folder unless they are there."""
    try:
        described = output_of("apt-cache", "depends", "postgresql", folder=Path("/"))
    except (OSError, subprocess.SubprocessError) as error:
        raise ServerNotFoundError(f"no PostgreSQL server is installed, and there is no apt: {error}") from None
    version = next(iter(re.findall(r"postgresql-(\d+)", described)), None)
    if version is None:
        raise ServerNotFoundError("apt knows no package of a PostgreSQL server")
    packages = (f"postgresql-{version}", f"postgresql-client-{version}", "libpq5")
    return unpacked("postgresql", packages, "usr/lib/postgresql/*/bin")[0]


@dataclass(slots=True)
class Postgres:
    """A server: its address, its superuser's password, and how it is stopped and started again."""

    programs: Path
    folder: Path
    port: int
    password: str
    user: int | None
    settings: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address, as WITH has it."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the superuser; the rows of the last one come back."""
        import psycopg

        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", password=self.password, dbname="postgres"
        ) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start the server; returns when it answers."""
        command = [self.programs / "postgres", "-D", self.folder / "data", "-p", self.port, "-c", "fsync=off"]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "log_statement=all"]
        command += [part for each in self.settings for part in ("-c", each)]
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdout=output,
                stderr=output,
                user=self.user,
                cwd=self.folder,
                env=with_libraries(self.programs.parents[2]),
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(Exception):
                self.execute("SELECT 1")
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"the server did not come up: {self.output()[-2000:]}")

    def stop(self) -> None:
        """Stop the server at once, as a crash does; what it stored stays."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGQUIT)
        try:
            self.process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=STOP_SECONDS)
        self.process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """No process of the server does anything meanwhile; its connections stay open."""
        found = [pid for (pid,) in self.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")]
        assert self.process is not None
        stopped: list[int] = []
        try:
            for pid in (self.process.pid, *found):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def statements(self) -> list[str]:
        """All statements so far, as the server logged them."""
        found = re.findall(r"LOG:  (?:statement|execute [^:]*): (.*?)(?=\n\d{4}-|\Z)", self.output(), re.DOTALL)
        return [" ".join(statement.split()) for statement in found]

    def output(self) -> str:
        """What the server printed."""
        return (self.folder / "output.txt").read_text(errors="replace")


@contextlib.contextmanager
def postgres_server(programs: Path | None = None, settings: tuple[str, ...] = ()) -> Iterator[Postgres]:
    """An empty server with ``settings`` (``name=value``); ended, and its data removed, at the end.

    Raises ``ServerNotFoundError``.
    """
    programs = programs or find_programs()
    user = unprivileged_user()
    with tempfile.TemporaryDirectory(prefix="watersmeet-postgres-") as name:
        folder = Path(name)
        if user is not None:
            os.chown(folder, user, -1)
        password = secrets.token_hex(12)
        _run_initdb(programs, folder, password, user)
        server = Postgres(programs, folder, free_port(), password, user, settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _run_initdb(programs: Path, folder: Path, password: str, user: int | None) -> None:
    secret = folder / "password"
    secret.write_text(password)
    if user is not None:
        os.chown(secret, user, -1)
    command: Sequence[object] = [
        *(programs / "initdb", "-D", folder / "data", "-U", "postgres", "-A", "scram-sha-256"),
        *("--pwfile", secret, "-E", "UTF8", "--locale", "C", "--no-sync"),
    ]
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        user=user,
        cwd=folder,
        env=with_libraries(programs.parents[2]),
        timeout=START_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")
