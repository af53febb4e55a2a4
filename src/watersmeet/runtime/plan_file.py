"""The plan file of a checkpoint: what must not change while the checkpoint lives."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from watersmeet.checksums import DamageError, Seal, read_sealed
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.kernels.interval import IntervalJoin
from watersmeet.kernels.match import WindowMatch
from watersmeet.kernels.multi_way.match import MultiWayMatch
from watersmeet.kernels.multi_way.shared import SharedJoins
from watersmeet.settings.query_settings import REAL_TIME
from watersmeet.settings.seek import Seek

PLAN_VERSION = 2
#: The version of a plan that has been rescaled: earlier releases would go on with the old buckets.
RESCALED_VERSION = 3
#: The version of a plan with operators that share a task: earlier releases would look for their state elsewhere.
TASKS_VERSION = 4
READABLE_VERSIONS = (PLAN_VERSION, RESCALED_VERSION, TASKS_VERSION)


class PlanFile(BaseModel):
    """The content of ``plan.json``."""

    model_config = ConfigDict(extra="forbid")

    version: int = PLAN_VERSION
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)
    """Part of the keys under which the query's sinks note its batches."""
    buckets: tuple[int, ...]
    operators: dict[str, dict[str, str]] = {}
    """What each operator's state consists of, by the operator's name (see ``describe``)."""
    sealed: bool = False
    """Whether a bounded run has processed the end of its input."""
    mode: str = "micro_batch"
    """How the query runs; files without it: in micro-batches."""
    seek: Seek | None = None
    """Where the streams were first read from; files without it: from the beginning."""
    starts: dict[str, dict[int, int]] = {}
    """The positions of partitions, by stream, from which workers first read streams that did not begin at their first
    records; of an embedded stream, the number of its baseline, and a checksum of its segment's name.  Files without a
    stream: Spark read it, and its own checkpoint says where from."""
    kept_buckets: dict[str, tuple[int, ...]] = {}
    """The buckets of operators that did not get others when the query did, by the operator's name."""
    tasks: tuple[tuple[str, ...], ...] = ()
    """The operators that run in one task, by name; all others run alone."""
    said_buckets: int | None = None
    """What SETTINGS said when the number of buckets was changed: they may go on saying so."""
    generation: int = 0
    """How often the state has been rewritten: for other buckets, or for a query that was changed."""
    batches_before: int = 0
    """The query's batches before the first one in Spark's checkpoint, whose number there is 0."""

    @property
    def spark(self) -> str:
        """The name of the folder of Spark's checkpoint: in micro-batches it holds the state, and is made anew."""
        return "spark" if self.mode == REAL_TIME else f"spark{suffix_of(self.generation)}"

    @property
    def epochs(self) -> str:
        """The name of the folder of the state of a query in real time."""
        return f"epochs{suffix_of(self.generation)}"


def suffix_of(generation: int) -> str:
    """How the names of folders end that hold the state, after it has been rewritten so often."""
    return f"-{generation}" if generation else ""


def said_file(generation: int) -> str:
    """The name of the file that tells what the query said, after so many rewritings of its state."""
    return f"query{suffix_of(generation)}.json"


def describe(spec: OperatorSpec) -> dict[str, str]:
    """Describe an operator's state in text; the texts are stored, and two plans fit if theirs are equal."""
    inputs = {
        f"input {number + 1}": f"{input.source or 'the operator before'}: "
        f"{', '.join(f'{field.name} {field.type}' for field in input.schema)}"
        for number, input in enumerate(spec.inputs)
    }
    made = {f"input {number + 1} is made of": input.origin for number, input in enumerate(spec.inputs) if input.source}
    waits = {
        f"frontier behind input {number + 1}": str(each.waited_for)
        for number, each in enumerate(spec.inputs)
        if each.waited_for
    }
    kernel = {f"{type(spec.kernel).__name__} {name}": repr(value) for name, value in _parts(spec.kernel)}
    return {**inputs, **made, **waits, **kernel, "buckets": str(spec.buckets), "fingerprint": spec.fingerprint}


def differences(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield one line per difference between two descriptions; the fingerprint only if nothing else differs."""
    for operator in sorted({*before, *now}):
        old, new = before.get(operator, {}), now.get(operator, {})
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        for name in [name for name in names if name != "fingerprint"] or names:
            yield f"{operator}, {name}: was {old.get(name, 'absent')}, is {new.get(name, 'absent')}"


def has_kernel(described: Mapping[str, str], kernel: type) -> bool:
    """Whether a description is that of an operator with a kernel of this type."""
    return any(name.startswith(f"{kernel.__name__} ") for name in described)


def _parts(kernel: Any) -> Iterator[tuple[str, object]]:
    for field in fields(kernel):
        if not field.repr:  # it affects how the kernel works, not what it stores
            continue
        value = getattr(kernel, field.name)
        if isinstance(value, IntervalJoin | WindowMatch | MultiWayMatch):
            yield from _parts(value)
        elif isinstance(kernel, SharedJoins) and field.name == "joins":
            for number, join in enumerate(value, 1):
                yield from ((f"query {number} {name}", part) for name, part in _parts(join))
        else:
            yield field.name, value


def decode_plan(content: bytes, path: str) -> PlanFile:
    """Decode the plan file at a path; ``CheckpointError`` if it is damaged or of another version."""
    restore = "restore the file from a copy, or start on a new checkpoint"
    try:
        values, seal = read_sealed(content)
        found = PlanFile.model_validate(values)
    except (DamageError, ValidationError) as error:
        reason = str(error) if isinstance(error, DamageError) else error.errors(include_url=False)[0]["msg"]
        raise CheckpointError(
            f"{path} cannot be read",
            detail=reason,
            hint=f"is this the checkpoint of a Watersmeet query? If so, {restore}",
        ) from None
    if found.version not in READABLE_VERSIONS:
        versions = " and ".join(map(str, READABLE_VERSIONS))
        raise CheckpointError(
            f"the checkpoint {path.removesuffix('/plan.json')} has plan format {found.version}, this version reads"
            f" {versions}",
            hint="run it with the version that wrote it, or start on a new checkpoint",
        )
    if seal is Seal.WRONG:
        raise CheckpointError(
            f"{path} is damaged: its checksum is that of another content",
            hint=f"{restore}; if you edited the file on purpose, delete the checksum in it",
        )
    return found
