"""After which failures a job is started again, how often, and which scripts may run again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from watersmeet import errors
from watersmeet.cli.parameters import UsageError
from watersmeet.errors import (
    BindError,
    CatalogError,
    CheckpointError,
    ConfigError,
    LimitError,
    LostProcessError,
    OutageError,
    PlanError,
    SqlSyntaxError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from watersmeet.sql.statements import Statement

#: How many restarts may follow each other if ``--max-restarts`` names no number.
DEFAULT_RESTARTS = 10
#: A run that lasted this long was healthy: what came before it no longer counts.
HEALTHY_SECONDS = 600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 120.0
#: They come again however often the job is started.
_LASTING = (
    *(SqlSyntaxError, BindError, PlanError, UnsupportedError, ConfigError, CatalogError, CheckpointError, LimitError),
)
_PASSING = (OutageError, LostProcessError)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run of the job has ended.

    ``code`` is its exit code, as Python gives it: negative after a signal.  ``kind`` and ``message`` are the class and
    the text of its error (empty: it could not say), ``batches`` is how many it has committed, ``seconds`` how long it
    lasted.
    """

    code: int
    seconds: float
    kind: str = ""
    message: str = ""
    batches: int = 0

    @property
    def reason(self) -> str:
        """Why it has ended, in one line."""
        if self.message:
            return self.message.splitlines()[0]
        return f"its process was ended by signal {-self.code}" if self.code < 0 else f"it ended with code {self.code}"


@dataclass(slots=True)
class Restarts:
    """Decides whether a job is started again: at most ``most`` times in a row, each time after a longer pause."""

    most: int
    in_a_row: int = 0
    _last: Ending | None = None
    _pauses: Iterator[float] | None = None

    def pause_after(self, ending: Ending) -> float | None:
        """Seconds until the job is started again; None if it is not, as ``why_not`` says then."""
        if ending.seconds >= HEALTHY_SECONDS:
            self.in_a_row, self._last, self._pauses = 0, None, None
        if self.why_not(ending):
            return None
        self.in_a_row += 1
        self._last, self._pauses = ending, self._pauses or _new_pauses()
        return next(self._pauses)

    def why_not(self, ending: Ending) -> str:
        """Why a job is not started again after this ending; empty if it is."""
        kind = getattr(errors, ending.kind, None) if ending.kind else None
        if ending.code == 2 or (isinstance(kind, type) and issubclass(kind, _LASTING)):
            return "this failure would come again"
        passes = kind is None or issubclass(kind, _PASSING)
        last = self._last
        if not passes and last is not None and not ending.batches and last.message == ending.message:
            return "the same failure has come again, at the same batch"
        if self.in_a_row >= self.most:
            return f"it was started again {self.most} times in a row"
        return ""


def _new_pauses() -> Iterator[float]:
    from watersmeet.lookup.retry import OnError, RetryPolicy

    return RetryPolicy(on_error=OnError.RETRY, first_pause=_FIRST_PAUSE, longest_pause=_LONGEST_PAUSE).pauses()


def require_repeatable(statements: Sequence[Statement], *, bounded: bool) -> None:
    """Raise ``UsageError`` for a statement that may not run again, or that fails then."""
    from watersmeet.sql.statements import (
        CreateIndex,
        CreateStream,
        CreateTable,
        Drop,
        DropIndex,
        InsertHistorical,
        InsertSelect,
        InsertValues,
        Select,
        StatementSet,
    )

    queries = 0
    for statement in statements:
        match statement:
            case InsertValues() | InsertHistorical():
                _refuse(
                    "INSERT of rows",
                    "each run would insert them again",
                    "insert them before, by a run of their own",
                    statement,
                )
            case Drop() | DropIndex():
                _refuse("DROP", "each run would drop it again", "drop it before, by a run of its own", statement)
            case (
                CreateStream(if_not_exists=False) | CreateTable(if_not_exists=False) | CreateIndex(if_not_exists=False)
            ):
                _refuse("CREATE", "what it creates exists in the second run", "write CREATE … IF NOT EXISTS", statement)
            case InsertSelect() | Select() | StatementSet():
                queries += 1
            case CreateStream(query=query) if query is not None:
                queries += 1
    if bounded and queries > 1:
        raise UsageError(
            f"--restart-on-failure with --bounded takes a script of one query, but this one has {queries}",
            hint="a query that has ended cannot run again; use a script for each, EXECUTE STATEMENT SET, or --drain",
        )


def _refuse(what: str, why: str, instead: str, statement: Statement) -> None:
    raise UsageError(f"{what} does not go with --restart-on-failure: {why}", hint=instead, position=statement.position)
