"""What a worker may take: as the query says, else a share of the machine or the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.errors import ConfigError
from watersmeet.runtime import memory_setting
from watersmeet.runtime.memory_setting import MemorySetting, machine_memory, of_executors
from watersmeet.settings.query_settings import LEAST_WORKER_BYTES, parse_settings
from watersmeet.settings.sizes import size, size_text
from watersmeet.state.worker_memory import BASE_BYTES, WorkerMemory


def test_the_shares_leave_room_for_what_a_step_makes() -> None:
    memory = WorkerMemory(600_000_000)
    rest = 600_000_000 - BASE_BYTES
    assert (memory.table_bytes, memory.keyed_bytes, memory.step_bytes) == (rest // 2, rest // 5, rest // 10)
    assert WorkerMemory(LEAST_WORKER_BYTES).step_bytes > 0


@pytest.mark.parametrize(
    ("machine", "setting", "expected"),
    [
        (24 << 30, MemorySetting(600_000_000), 600_000_000),
        (10_000_000_000, MemorySetting(None, 2, 2_000_000_000), 2_750_000_000),
        (2_000_000_000, MemorySetting(None, 8, 1_000_000_000), LEAST_WORKER_BYTES),
        (24 << 30, MemorySetting(None, 2, 1_000_000_000, 4_000_000_000), 850_000_000),
    ],
    ids=["the query says it", "a share", "a machine that is too small", "a container that is smaller"],
)
def test_a_worker_has_a_share_of_its_machine(
    machine: int, setting: MemorySetting, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_setting, "machine_memory", lambda: machine)
    assert setting.here().total == expected


def test_more_than_the_machine_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_setting, "machine_memory", lambda: 16_000_000_000)
    with pytest.raises(ConfigError, match=r"worker_memory = '17 GB', and this machine or its container has 16 GB"):
        MemorySetting(17_000_000_000, 1, 1_000_000_000).check(1)


@pytest.mark.parametrize(
    ("wanted", "buckets", "told"),
    [
        (None, 8, None),
        (3_000_000_000, 5, None),
        (3_000_000_000, 8, "6 workers at once with 3 GB each, and a JVM with 1 GB, may take 19 GB, and this machine"),
    ],
    ids=["a share", "few buckets", "too many"],
)
def test_more_than_the_machine_has_for_all_is_warned_of(
    wanted: int | None,
    buckets: int,
    told: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(memory_setting, "machine_memory", lambda: 16_000_000_000)
    MemorySetting(wanted, 6, 1_000_000_000).check(buckets)
    assert (told or "") in caplog.text
    assert bool(caplog.messages) == (told is not None)


def test_what_executors_have() -> None:
    def of(master: str, **settings: str) -> MemorySetting:
        named = {f"spark.{name.replace('__', '.')}": value for name, value in settings.items()}
        return of_executors(master, named, lambda text: int(text.removesuffix("m")), None)

    small = {"executor__memory": "2000m"}
    assert of("spark://host:7077", **small) == MemorySetting(None, None, 2000 << 20)
    assert of("yarn", **small) == MemorySetting(None, 1, 2000 << 20, 2384 << 20)
    large = {"executor__memory": "8000m", "executor__cores": "4", "task__cpus": "2"}
    assert of("k8s://https://host", **large) == MemorySetting(None, 2, 8000 << 20, 8800 << 20)
    given = {**large, "executor__memoryOverhead": "6000", "executor__pyspark__memory": "100m"}
    assert of("yarn", **given) == MemorySetting(None, 2, 8000 << 20, 14100 << 20)


@pytest.mark.parametrize(("text", "is_limit"), [("1000000\n", True), ("max\n", False), ("", False)])
def test_the_limit_of_a_container_counts(
    text: str, is_limit: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(text)
    monkeypatch.setattr(memory_setting, "_CONTAINER_LIMITS", (str(limit), str(tmp_path / "none")))
    machine_memory.cache_clear()
    assert (machine_memory() == 1_000_000) == is_limit
    machine_memory.cache_clear()


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("600MB", 600_000_000), ("2 GiB", 2 << 30), ("1.5gb", 1_500_000_000), ("400000000 B", 400_000_000)],
)
def test_sizes_have_units(text: str, nbytes: int) -> None:
    assert size(text) == nbytes
    assert parse_settings({"worker_memory": text}).worker_memory == nbytes


@pytest.mark.parametrize("text", ["600", "MB", "6 iB", "-1GB", "lots"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write a number and a unit, such as '600MB'"):
        parse_settings({"worker_memory": text})


@pytest.mark.parametrize(("little", "text"), [("100MB", "100 MB"), (1.0, "1 byte"), (400, "400 bytes")])
def test_too_little_is_refused(little: object, text: str) -> None:
    with pytest.raises(ConfigError, match=f"this is {text}, and a worker needs at least 400 MB, such as '600MB'"):
        parse_settings({"worker_memory": little})


@pytest.mark.parametrize("name", ["join_max_buffered_bytes", "max_hot_bytes", "worker_memory"])
def test_other_settings_take_sizes_too_and_none_that_there_cannot_be(name: str) -> None:
    assert getattr(parse_settings({name: "1.5 GB", "default_hash_join": "hybrid"}), name) == 1_500_000_000
    with pytest.raises(ConfigError, match=f"option {name} = '1000TB': input should be less than 1000000000000000"):
        parse_settings({name: "1000TB"})
    with pytest.raises(ConfigError, match="input should be less than 1000000000000000"):
        parse_settings({name: f"{10**400}MB"})


def test_an_option_is_shown_as_it_was_written() -> None:
    with pytest.raises(ConfigError, match="option idle_timeout = '0 seconds': input should be greater than 0"):
        parse_settings({"idle_timeout": "0 seconds"})


@pytest.mark.parametrize("name", ["cache_bytes", "memory_limit"])
def test_settings_of_earlier_versions_name_the_new_one(name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_settings({name: 1})
    assert "worker_memory" in str(raised.value.hint)
    assert raised.value.option == name


def test_sizes_are_told_in_their_largest_unit() -> None:
    assert [size_text(each) for each in (600_000_000, 2_500_000_000, 999, 1_000)] == [
        "600 MB",
        "2.5 GB",
        "999 bytes",
        "1 kB",
    ]
