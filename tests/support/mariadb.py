"""A real MariaDB server on loopback for tests, from Debian's packages."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.debian import free_port, unpacked, unprivileged_user, with_libraries

START_SECONDS = 60.0
STOP_SECONDS = 15.0
_PACKAGES = ("mariadb-server-core", "liburing2", "libaio1", "libnuma1", "libpcre2-8-0")
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
_STEADY = (
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=32M",
    "--skip-name-resolve",
)


def find_root() -> Path:
    """The folder under which ``usr/sbin/mariadbd`` is. Raises ``ServerNotFoundError``."""
    if Path("/usr/sbin/mariadbd").exists():
        return Path("/")
    return unpacked("mariadb", _PACKAGES, "usr/sbin/mariadbd")[0].parents[2]


@dataclass(slots=True)
class MariaDb:
    """A server: its address, the password of its user ``root``, and how it is stopped and started again."""

    root: Path
    folder: Path
    port: int
    password: str
    user: int | None
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address, as WITH has it."""
        return f"jdbc:mariadb://127.0.0.1:{self.port}/shop"

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the superuser; the rows of the last one come back."""
        import pymysql

        with contextlib.closing(
            pymysql.connect(
                host="127.0.0.1", port=self.port, user="root", password=self.password, autocommit=True, read_timeout=30
            )
        ) as connection:
            cursor = connection.cursor()
            for statement in ("CREATE DATABASE IF NOT EXISTS shop", "USE shop", *statements):
                cursor.execute(statement)
            return list(cursor.fetchall())

    def start(self) -> None:
        """Start the server; returns when it answers."""
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [*self._command(), f"--port={self.port}", "--bind-address=127.0.0.1", *_STEADY],
                **self._settings(),
                stdout=output,
                stderr=output,
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
        """Kill the server; what it stored stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=STOP_SECONDS)
            self.process = None

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """The server does nothing meanwhile; its connections stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            os.waitpid(self.process.pid, os.WUNTRACED)  # until it has stopped
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def output(self) -> str:
        """What the server printed."""
        return (self.folder / "output.txt").read_text(errors="replace")

    def install(self) -> None:
        """Make the tables of the system, and the superuser's password."""
        scripts = [(self.root / "usr/share/mysql" / name).read_text() for name in _SYSTEM_TABLES]
        password = (
            "FLUSH PRIVILEGES;\n"
            f"CREATE OR REPLACE USER root@'127.0.0.1' IDENTIFIED BY '{self.password}';\n"
            "GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
        )
        done = subprocess.run(
            [*self._command(), "--bootstrap"],
            **self._settings(),
            input="\n".join(["CREATE DATABASE mysql;", "USE mysql;", *scripts, password]),
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the server's tables could not be made: {done.stdout}{done.stderr}")

    def _command(self) -> list[str]:
        return [
            *(str(self.root / "usr/sbin/mariadbd"), "--no-defaults", f"--datadir={self.folder / 'data'}"),
            *(f"--lc-messages-dir={self.root / 'usr/share/mysql'}", f"--socket={self.folder / 'socket'}"),
            *(f"--plugin-dir={self.root / 'usr/lib/mysql/plugin'}", f"--pid-file={self.folder / 'pid'}"),
            f"--character-sets-dir={self.root / 'usr/share/mysql/charsets'}",
        ]

    def _settings(self) -> dict[str, Any]:
        folders = [self.root / name for name in ("usr/lib", "lib")]
        return {"user": self.user, "cwd": self.folder, "env": with_libraries(*folders)}


@contextlib.contextmanager
def mariadb_server() -> Iterator[MariaDb]:
    """An empty server; ended, and its data removed, at the end.  Raises ``ServerNotFoundError``."""
    root, user = find_root(), unprivileged_user()
    with tempfile.TemporaryDirectory(prefix="watersmeet-mariadb-") as name:
        folder = Path(name)
        (folder / "data").mkdir()
        if user is not None:
            for path in (folder, folder / "data"):
                os.chown(path, user, -1)
        server = MariaDb(root, folder, free_port(), secrets.token_hex(12), user)
        server.install()
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder / "data", ignore_errors=True)
