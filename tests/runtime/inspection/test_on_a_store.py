"""Checkpoints on a store that speaks S3 are shown, verified and copied, there and back."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs
import pytest
from typer.testing import CliRunner

from tests.runtime.inspection.checkpoints import LIVE, MICRO_BATCHES, unpack_micro_batches, write_live
from tests.support.object_store import BUCKET, object_store
from watersmeet import filesystems
from watersmeet.cli.main import app
from watersmeet.filesystems import filesystem_of
from watersmeet.runtime.inspection.stored_query import read_query
from watersmeet.runtime.inspection.verify import verify

RUNNER = CliRunner()


@pytest.mark.slow
def test_checkpoints_on_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = tmp_path / "queries"
    queries.mkdir()
    unpack_micro_batches(queries)
    write_live(queries)
    workspace = f"s3a://{BUCKET}/team"
    with object_store() as (_, variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        filesystems._s3.cache_clear()
        filesystem, path = filesystem_of(workspace)
        pyarrow.fs.copy_files(
            str(queries),
            f"{path}/queries",
            source_filesystem=pyarrow.fs.LocalFileSystem(),
            destination_filesystem=filesystem,
        )
        listed = RUNNER.invoke(app, ["state", "-w", workspace, "--format", "csv"])
        assert [line.split(",")[0] for line in listed.stdout.splitlines()] == ["query", MICRO_BATCHES, LIVE]
        assert RUNNER.invoke(app, ["checkpoint", "verify", "-w", workspace]).exit_code == 0
        there = RUNNER.invoke(app, ["checkpoint", "copy", MICRO_BATCHES, f"s3a://{BUCKET}/copy", "-w", workspace])
        assert (there.exit_code, there.stderr) == (0, "")
        described = filesystem.open_input_stream(f"{BUCKET}/copy/{MICRO_BATCHES}/spark/state/0/_metadata/v2/0").read()
        assert f'["s3a://{BUCKET}/copy/{MICRO_BATCHES}/spark/state/0/_stateSchema/'.encode() in described
        back = RUNNER.invoke(app, ["checkpoint", "copy", LIVE, str(tmp_path / "back"), "-w", workspace])
        assert (back.exit_code, back.stderr) == (0, "")
        filesystem.delete_file(f"{path}/queries/{LIVE}/epochs/operators/join_1/3/000000001-000000.state")
        damaged = RUNNER.invoke(app, ["checkpoint", "verify", LIVE, "-w", workspace])
        assert (damaged.exit_code, "000000001-000000.state cannot be read" in damaged.stdout) == (1, True)
    filesystems._s3.cache_clear()
    assert verify(str(tmp_path / "back" / LIVE)).faults == []
    assert sum(bucket.manifest.nbytes for bucket in read_query(str(tmp_path / "back" / LIVE)).buckets) > 0
