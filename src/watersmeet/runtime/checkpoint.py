"""What stands beside Spark's checkpoint of a query: its plan file and its control events.

    CHECKPOINT/spark/      Spark's own checkpoint: offsets, commits, state
    CHECKPOINT/plan.json   bucket numbers and where streams were begun (never changed again), and what state each
                           operator keeps
    CHECKPOINT/control/    one file for each control event, read by the query as a stream
    CHECKPOINT/counters.json   what the last run told of them
    CHECKPOINT/failure.log     Spark's whole text of the last failure
    CHECKPOINT/side/       late and quarantined rows, by batch
    CHECKPOINT/hot_keys/   which keys' rows are spread over buckets, by query, operator and batch

A checkpoint that has seen the end of its input is sealed: a later run on it is refused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from watersmeet.engine.events import Event, EventKind
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError
from watersmeet.kernels.match import WindowMatch
from watersmeet.runtime.storage import Storage
from watersmeet.settings.seek import Seek

PLAN_VERSION = 2


class PlanFile(BaseModel):
    """The part of a plan that must not change while a checkpoint lives."""

    version: int = PLAN_VERSION
    id: str = Field(default_factory=lambda: uuid.uuid4().hex)  # names what its query has written
    buckets: tuple[int, ...]
    operators: dict[str, dict[str, str]] = {}  # by name: what its state is made of
    sealed: bool = False
    # where its streams were begun; in files that were written before there was such a thing: at their beginning
    seek: Seek | None = None


class Checkpoint:
    """A query's checkpoint folder (a path or URI)."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self.folder = folder.rstrip("/")
        self._storage = storage

    @property
    def spark(self) -> str:
        """Spark's own checkpoint location."""
        return f"{self.folder}/spark"

    @property
    def control(self) -> str:
        """The folder of control events."""
        return f"{self.folder}/control"

    @property
    def side(self) -> str:
        """The folder of late and quarantined rows."""
        return f"{self.folder}/side"

    @property
    def hot_keys(self) -> str:
        """The folder of hot keys."""
        return f"{self.folder}/hot_keys"

    def prepare(self) -> None:
        """Make the folders."""
        for folder in (self.control, self.side):
            self._storage.make_folder(folder)

    def read_plan(self) -> PlanFile | None:
        """The plan file, None in a new checkpoint; ``CheckpointError`` where it cannot be understood."""
        text = self._storage.read_text(f"{self.folder}/plan.json")
        if text is None:
            return None
        try:
            found = PlanFile.model_validate_json(text)
        except ValidationError as error:
            raise CheckpointError(
                f"{self.folder}/plan.json cannot be read",
                detail=str(error.errors(include_url=False)[0]["msg"]),
                hint="is this the checkpoint of a Watersmeet query? else start on a new one",
            ) from None
        if found.version != PLAN_VERSION:
            raise CheckpointError(
                f"the checkpoint {self.folder} has plan format {found.version}, this version reads {PLAN_VERSION}",
                hint="run it with the version that wrote it, or start on a new checkpoint",
            )
        return found

    def write_plan(self, plan: PlanFile) -> None:
        """Write the plan file."""
        self._storage.write_text(f"{self.folder}/plan.json", plan.model_dump_json(indent=2))

    def accept(
        self,
        stored: PlanFile | None,
        buckets: Sequence[int],
        operators: Sequence[OperatorSpec],
        seek: Seek | None = None,
    ) -> PlanFile:
        """Check that the stored state fits these operators, or note them in a new checkpoint.

        The SELECT list, post-filters and sink may change freely; whatever changes the state of an operator may not.
        Raises ``CheckpointError`` where it does, or where Spark has made progress and nothing says what for.
        """
        described = {spec.name: describe(spec) for spec in operators}
        if stored is None:
            if self._storage.names(f"{self.spark}/commits"):
                raise CheckpointError(
                    f"the checkpoint {self.folder} has progress but no plan.json, which says of what query",
                    hint="bring the file back, or start on a new checkpoint",
                )
            stored = PlanFile(buckets=tuple(buckets), operators=described, seek=seek)
            self.write_plan(stored)
            return stored
        if described != stored.operators:
            raise CheckpointError(
                f"the query has changed since the checkpoint {self.folder} was made",
                detail="\n".join(_differences(stored.operators, described)),
                hint="undo the change, or start on a new checkpoint (its state begins empty)",
            )
        return stored

    def refuse_sealed(self, stored: PlanFile | None) -> None:
        """Raise ``CheckpointError`` where the query has already been told that its input has ended."""
        if stored is not None and stored.sealed:
            raise CheckpointError(
                f"the checkpoint {self.folder} is sealed: a bounded run has treated its input as all there is",
                hint="to begin again delete that folder or use another checkpoint; a job that is to go on later runs "
                "with --drain, never with --bounded",
            )

    def seal(self) -> None:
        """Note that the end of input has been processed."""
        stored = self.read_plan()
        assert stored is not None  # a query has run on it
        self.write_plan(stored.model_copy(update={"sealed": True}))

    def write_event(self, event: Event) -> None:
        """Add a control event; the query reads it with its next batch."""
        number = len(self._storage.names(self.control))
        self._storage.write_text(f"{self.control}/{number:012d}.json", event.to_json().decode() + "\n")

    def write_failure(self, text: str) -> None:
        """Keep the whole text of a failure, for whoever looks into it."""
        self._storage.write_text(f"{self.folder}/failure.log", text)

    def read_counters(self) -> dict[str, int]:
        """The counters as the last run left them, none in a new checkpoint."""
        text = self._storage.read_text(f"{self.folder}/counters.json")
        return {} if text is None else {str(name): int(value) for name, value in json.loads(text).items()}

    def write_counters(self, counters: Mapping[str, int]) -> None:
        """Keep the counters for a run that may have nothing to do; what counts is the operators' state."""
        self._storage.write_text(f"{self.folder}/counters.json", json.dumps(counters))

    def has_ended(self) -> bool:
        """Whether the end of input has been declared (by a run that may not have come to process it)."""
        names = self._storage.names(self.control)
        texts = [self._storage.read_text(f"{self.control}/{name}") for name in names]
        return any(text and Event.from_json(text).kind is EventKind.END for text in texts)


def describe(spec: OperatorSpec) -> dict[str, str]:
    """What an operator keeps, in words that tell two plans apart."""
    inputs = {
        f"input {number + 1}": f"{input.source or 'the operator before'}: "
        f"{', '.join(f'{field.name} {field.type}' for field in input.schema)}"
        for number, input in enumerate(spec.inputs)
    }
    made = {f"input {number + 1} is made of": input.origin for number, input in enumerate(spec.inputs) if input.source}
    kernel = {f"{type(spec.kernel).__name__} {name}": repr(value) for name, value in _parts(spec.kernel)}
    return {**inputs, **made, **kernel, "buckets": str(spec.buckets), "fingerprint": spec.fingerprint}


def _parts(kernel: Any) -> Iterator[tuple[str, object]]:
    for field in fields(kernel):
        if not field.repr:  # it says how to work, not what is kept
            continue
        value = getattr(kernel, field.name)
        if isinstance(value, WindowMatch):
            yield from _parts(value)
        else:
            yield field.name, value


def _differences(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """What differs, one line for each thing; the fingerprint only where nothing else does."""
    for operator in sorted({*before, *now}):
        old, new = before.get(operator, {}), now.get(operator, {})
        names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        for name in [name for name in names if name != "fingerprint"] or names:
            yield f"{operator}, {name}: was {old.get(name, 'not there')}, is {new.get(name, 'not there')}"
