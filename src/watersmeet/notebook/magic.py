"""``%%watersmeet``: carries out the statements of a cell in a session, and shows their results."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from IPython.core.magic_arguments import MagicArgumentParser

from watersmeet.errors import ConfigError, WatersmeetError
from watersmeet.notebook.cell import Cell
from watersmeet.notebook.failures import cell_error

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from watersmeet.session.session import Session

_DEFAULT_SESSION = "session"
_DEFAULT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """What stands behind ``%%watersmeet``."""

    into: str | None
    session: str
    seconds: float
    is_bounded: bool
    is_real_time: bool


def magic_of(shell: InteractiveShell) -> Callable[[str, str], None]:
    """Return the cell magic for one shell, whose variables it reads and sets."""
    parser = _parser()

    def watersmeet(line: str, cell: str) -> None:
        try:
            options = _options(parser, line)
            session = _session(shell, options.session)
            carried_out = Cell(
                session, cell, seconds=options.seconds, bounded=options.is_bounded, real_time=options.is_real_time
            )
            result = carried_out.run()
        except WatersmeetError as error:
            raise cell_error(error, cell) from None
        if options.into is not None:
            shell.user_ns[options.into] = result

    watersmeet.__doc__ = parser.format_help()
    return watersmeet


def _parser() -> MagicArgumentParser:
    parser = MagicArgumentParser("%%watersmeet", description="Carry out SQL statements and show their results.")
    parser.add_argument("--into", metavar="NAME", help="the variable that takes the result of the last statement")
    parser.add_argument(
        "--session",
        metavar="NAME",
        default=_DEFAULT_SESSION,
        help=f"the variable of the session; made by watersmeet.connect() if missing (default: {_DEFAULT_SESSION})",
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=float,
        default=_DEFAULT_SECONDS,
        help=f"how long running queries are shown (default: {_DEFAULT_SECONDS:g})",
    )
    parser.add_argument("--bounded", action="store_true", help="what is there now is the whole input of queries")
    parser.add_argument("--real-time", action="store_true", help="queries emit row by row; their streams are Kafka's")
    return parser


def _options(parser: MagicArgumentParser, line: str) -> Options:
    try:
        given = parser.parse_argstring(line)  # raises IPython's UsageError, which shows no trace
    except ValueError as error:  # a quote without an end
        raise ConfigError(
            f"%%watersmeet {line} cannot be read: {error}", hint="write SQL below the first line"
        ) from None
    for name in filter(None, (given.into, given.session)):
        if not name.isidentifier() or keyword.iskeyword(name):
            raise ConfigError(f"{name} is not the name of a Python variable")
    if given.into == given.session:
        raise ConfigError(f"{given.into} is the variable of the session", hint="--into another one")
    if not given.seconds >= 0 or given.seconds == float("inf"):
        raise ConfigError(f"--seconds {given.seconds:g} is no length of time", hint="a number of seconds, such as 30")
    if given.bounded and given.real_time:
        raise ConfigError("a query in real time has no end: --bounded is for micro-batches")
    return Options(given.into, given.session, given.seconds, given.bounded, given.real_time)


def _session(shell: InteractiveShell, name: str) -> Session:
    """The session of a variable, which is set if it is not there."""
    from watersmeet.session.session import Session, connect

    if name not in shell.user_ns:
        shell.user_ns[name] = connect()
    found = shell.user_ns[name]
    if not isinstance(found, Session):
        raise ConfigError(
            f"the variable {name} is no session of Watersmeet, but of type {type(found).__name__}",
            hint="name that of watersmeet.connect(…) with --session",
        )
    return found
