"""A query's checkpoint folder: what Watersmeet keeps beside Spark's own checkpoint.

    CHECKPOINT/spark/          Spark's own checkpoint: offsets, commits, state
    CHECKPOINT/plan.json       what must not change while the checkpoint lives (plan_file.py)
    CHECKPOINT/query.json      the query as it last ran: its text and streams (said.py)
    CHECKPOINT/control/        one file per control event; the query reads them as a stream
    CHECKPOINT/counters.json   the counters of the last run, for people only
    CHECKPOINT/failure.log     Spark's full text of the last failure
    CHECKPOINT/side/           late, quarantined and evicted rows, by batch
    CHECKPOINT/hot_keys/       which keys' rows are spread over buckets, by query, operator and batch
    CHECKPOINT/sizes/          what each bucket of a join with a limit holds, by query, operator and batch
    CHECKPOINT/pieces/         by stream, what was read of a database's log and may have to be read again
    CHECKPOINT/epochs/         the state of a query in real time (real_time/epochs.py)

Once its state has been rewritten, ``spark-N`` or ``epochs-N`` holds it and ``query-N.json`` the query, N being how
often, and plan.json says so (rescale/).  The folders of before stay until a batch of the new ones has been committed.

A checkpoint whose query has processed the end of its input is sealed: later runs on it are refused.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError

from watersmeet.checksums import DamageError, Seal, read_sealed, sealed
from watersmeet.engine.control_events import Event, EventKind
from watersmeet.engine.specs import OperatorSpec
from watersmeet.errors import CheckpointError, ConnectorError, WatersmeetError
from watersmeet.kernels.evicting.join import EvictingJoin
from watersmeet.kernels.multi_way.join import MultiWayJoin
from watersmeet.kernels.sliding import SlidingJoin
from watersmeet.runtime.plan_file import (
    PLAN_VERSION,
    TASKS_VERSION,
    PlanFile,
    decode_plan,
    describe,
    differences,
    has_kernel,
    said_file,
    suffix_of,
)
from watersmeet.runtime.said import Said
from watersmeet.runtime.storage import DamagedFileError, Storage
from watersmeet.settings.seek import Seek

_log = logging.getLogger(__name__)
_EVENT = re.compile(r"(\d{12})\.json")
_GENERATION = re.compile(r"(spark|epochs)(-\d+)?|query(-\d+)?\.json|rescaled-\d+")
_COUNTERS = TypeAdapter(dict[Annotated[str, StringConstraints(pattern=r"^[^.]+\.[^.]+")], int])
#: Kernels that a setting chooses or leaves out.
_ALGORITHMS = (
    (EvictingJoin, "eviction", "oldest", "stop"),
    (MultiWayJoin, "multi_join", "on", "off"),
    (SlidingJoin, "join_algorithm", "sliding", "symmetric"),
)
_RESTORE = "restore the file from a copy, or start on a new checkpoint"


class Checkpoint:
    """A query's checkpoint folder (a path or URI)."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self.folder = folder.rstrip("/")
        self._storage = storage

    def spark(self, plan: PlanFile | None) -> str:
        """Spark's own checkpoint location; ``plan`` is what the plan file holds."""
        return f"{self.folder}/{plan.spark if plan is not None else 'spark'}"

    @property
    def control(self) -> str:
        """The folder of control events."""
        return f"{self.folder}/control"

    @property
    def side(self) -> str:
        """The folder of late, quarantined and evicted rows."""
        return f"{self.folder}/side"

    @property
    def hot_keys(self) -> str:
        """The folder of hot keys."""
        return f"{self.folder}/hot_keys"

    @property
    def sizes(self) -> str:
        """The folder of the sizes of buckets."""
        return f"{self.folder}/sizes"

    @property
    def pieces(self) -> str:
        """The folder of what was read of systems that give it only once."""
        return f"{self.folder}/pieces"

    def epochs(self, plan: PlanFile | None) -> str:
        """The folder of the state of a query in real time; ``plan`` is what the plan file holds."""
        return f"{self.folder}/{plan.epochs if plan is not None else 'epochs'}"

    def prepare(self, plan: PlanFile | None) -> None:
        """Make the folders, readable for their owner only, and delete what interrupted writers left in them.

        Spark itself would never begin beside what it left when it was killed in its first write.  ``plan`` is what the
        plan file holds.
        """
        self._storage.make_private_folder(self.folder)
        for folder in (self.control, self.side):
            self._storage.make_folder(folder)
            self._storage.remove_temporary(folder)
        for folder in (self.folder, f"{self.spark(plan)}/offsets", f"{self.spark(plan)}/commits"):
            self._storage.remove_temporary(folder)
        self._storage.remove_temporary(self.hot_keys, recursive=True)

    @contextmanager
    def removed_if_refused(self) -> Iterator[None]:
        """Delete a folder that is made meanwhile, if the query is refused before its plan file is there."""
        is_new = self._storage.modified(self.folder) is None
        try:
            yield
        except WatersmeetError:
            if is_new and self.read_plan() is None:
                self._storage.delete(self.folder)
            raise

    def has_batches(self, plan: PlanFile | None) -> bool:
        """Whether Spark has committed a batch; ``plan`` is what the plan file holds."""
        return bool(self._storage.names(f"{self.spark(plan)}/commits"))

    def remove_other_generations(self, plan: PlanFile) -> None:
        """Delete the state of before the number of buckets changed, and what changes that were broken off have left."""
        kept = (plan.spark, plan.epochs, said_file(plan.generation))
        for name in self._storage.names(self.folder):
            if _GENERATION.fullmatch(name) and name not in kept:
                self._storage.delete(f"{self.folder}/{name}")

    def remove_newer_generations(self, plan: PlanFile) -> None:
        """Delete what changes of the number of buckets have left that were broken off."""
        generations = range(plan.generation + 1)
        kept = {f"{name}{suffix_of(each)}" for name in ("spark", "epochs") for each in generations}
        kept |= {said_file(each) for each in generations}
        for name in self._storage.names(self.folder):
            if _GENERATION.fullmatch(name) and name not in kept:
                self._storage.delete(f"{self.folder}/{name}")

    # -- the plan file ---------------------------------------------------------------------------------------------

    def read_plan(self) -> PlanFile | None:
        """The plan file, None in a new checkpoint; ``CheckpointError`` if it is damaged or of another version."""
        path = f"{self.folder}/plan.json"
        text = self._read(path)
        if text is None:
            return None
        return decode_plan(text.encode(), path)

    def write_plan(self, plan: PlanFile) -> None:
        """Write the plan file."""
        self._storage.write_text(f"{self.folder}/plan.json", sealed(plan.model_dump_json(indent=2)).decode())

    # -- what the query said ---------------------------------------------------------------------------------------

    def read_said(self, plan: PlanFile) -> Said | None:
        """The query as it last ran; None in checkpoints of earlier versions, and if the file is damaged.

        What is compared with it is compared with the plan file too, so no result depends on it.
        """
        for generation in range(plan.generation, -1, -1):
            path = f"{self.folder}/{said_file(generation)}"
            try:
                if (text := self._storage.read_text(path)) is None:
                    continue
                content, seal = read_sealed(text.encode())
                return None if seal is Seal.WRONG else Said.model_validate(content)
            except (DamageError, ValidationError, DamagedFileError):
                _log.warning("%s is damaged: what the query said before is not known", path)
                return None
        return None

    def write_said(self, generation: int, said: Said) -> None:
        """Note what the query says, if that is new."""
        text = sealed(said.model_dump_json(indent=2)).decode()
        path = f"{self.folder}/{said_file(generation)}"
        try:
            is_known = self._storage.read_text(path) == text
        except DamagedFileError:
            is_known = False
        if not is_known:
            self._storage.write_text(path, text)

    # -- the plan file and a query -----------------------------------------------------------------------------------

    def accept(
        self,
        stored: PlanFile | None,
        buckets: Sequence[int],
        operators: Sequence[OperatorSpec],
        seek: Seek | None = None,
        mode: str = "micro_batch",
        starts: Mapping[str, dict[int, int]] | None = None,
        tasks: tuple[tuple[str, ...], ...] = (),
    ) -> PlanFile:
        """Check that the stored state fits these operators; in a new checkpoint, write the plan file.

        The SELECT list, post-filters and sink may change freely; what an operator's state consists of may not.
        Raises ``CheckpointError`` if it has changed, if it was made in another mode, or if Spark has made progress but
        the plan file is missing.
        """
        described = {spec.name: describe(spec) for spec in operators}
        if stored is None:
            if self.has_batches(None):
                raise CheckpointError(
                    f"the checkpoint {self.folder} has progress but no plan.json, which describes its query",
                    hint=_RESTORE,
                )
            stored = PlanFile(
                version=TASKS_VERSION if tasks else PLAN_VERSION,
                buckets=tuple(buckets),
                operators=described,
                seek=seek,
                mode=mode,
                starts=dict(starts or {}),
                tasks=tasks,
            )
            self.write_plan(stored)
            return stored
        if mode != stored.mode:
            raise CheckpointError(
                f"the checkpoint {self.folder} was made with mode = '{stored.mode}', and the query now has '{mode}'",
                detail="micro-batches keep their state in Spark's state store, real time in files of its epochs",
                hint=f"go on with mode = '{stored.mode}', or start on a new checkpoint (its state begins empty)",
            )
        if described != stored.operators:
            raise CheckpointError(
                f"the query has changed since the checkpoint {self.folder} was made",
                detail="\n".join(differences(stored.operators, described)),
                hint=f"{_undo(stored.operators, described)}; or let it go on (watersmeet replace FILE --dry-run says"
                " how), or start on a new checkpoint (its state begins empty)",
            )
        return stored

    def refuse_rescaled(self, plan: PlanFile) -> None:
        """Raise ``CheckpointError`` if the number of buckets was changed while a query ran with this plan."""
        now = self.read_plan()
        if now is None or now.generation != plan.generation:
            raise CheckpointError(
                f"the state of the checkpoint {self.folder} was changed while this query ran on it",
                hint="start the query again, as it is now: it goes on there, and no row is lost or doubled",
            )

    def refuse_sealed(self, stored: PlanFile | None) -> None:
        """Raise ``CheckpointError`` if the query has processed the end of its input."""
        if stored is not None and stored.sealed:
            raise CheckpointError(
                f"the checkpoint {self.folder} is sealed: a bounded run has treated its input as complete",
                hint="to begin again, delete that folder or use another checkpoint; run a job that is to continue "
                "later with --drain, never with --bounded",
            )

    def seal(self) -> None:
        """Note that the query has processed the end of its input."""
        stored = self.read_plan()
        assert stored is not None  # a query has run on it
        self.write_plan(stored.model_copy(update={"sealed": True}))

    # -- control events --------------------------------------------------------------------------------------------

    def write_event(self, event: Event) -> None:
        """Add a control event; the query reads it with its next batch."""
        number = max(self._events(), default=-1) + 1
        self._storage.write_text(self._event_path(number), event.to_json().decode() + "\n")

    def has_ended(self) -> bool:
        """Whether the end of input has been declared, perhaps by a run that did not process it.

        Raises ``CheckpointError`` if a control event is damaged.
        """
        return EventKind.END in [self._read_event(number).kind for number in self._events()]

    def _events(self) -> list[int]:
        """The numbers of all control events."""
        found = map(_EVENT.fullmatch, self._storage.names(self.control))
        return [int(name[1]) for name in found if name is not None]

    def _event_path(self, number: int) -> str:
        return f"{self.control}/{number:012d}.json"

    def _read_event(self, number: int) -> Event:
        path = self._event_path(number)
        text = self._read(path) or ""
        try:
            return Event.from_json(text)
        except CheckpointError:
            raise CheckpointError(f"{path} is damaged: it is not a control event", hint=_RESTORE) from None

    # -- for people ------------------------------------------------------------------------------------------------

    def write_failure(self, text: str) -> None:
        """Keep the full text of a failure for later inspection."""
        self._storage.write_text(f"{self.folder}/failure.log", text)

    def read_counters(self) -> dict[str, int]:
        """The counters of the last run.

        Empty in a new checkpoint, and if the file is damaged or cannot be read: no result depends on them.
        """
        path = f"{self.folder}/counters.json"
        try:
            text = self._storage.read_text(path)
            return {} if text is None else _COUNTERS.validate_json(text)
        except (ConnectorError, ValidationError) as error:
            reason = error.message if isinstance(error, ConnectorError) else f"{path} does not hold counters"
            _log.warning("%s: the counters of earlier runs are lost, no rows are", reason)
            return {}

    def write_counters(self, counters: Mapping[str, int]) -> None:
        """Keep the counters for a later run that may have nothing to process."""
        self._storage.write_text(f"{self.folder}/counters.json", json.dumps(counters))

    def _read(self, path: str) -> str | None:
        try:
            return self._storage.read_text(path)
        except DamagedFileError as error:
            raise CheckpointError(
                f"{error.message}: it is damaged",
                hint=f"{_RESTORE}; if you edited the file on purpose, delete its checksum (.NAME.crc)",
            ) from None


def _undo(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> str:
    """How to go on with a checkpoint of joins that another algorithm computed."""
    for kernel, setting, chosen, other in _ALGORITHMS:
        had, has = (any(has_kernel(each, kernel) for each in operators.values()) for operators in (before, now))
        if had != has:
            return f"undo the change (with SETTINGS {setting} = '{chosen if had else other}' joins run as they did)"
    return "undo the change"
