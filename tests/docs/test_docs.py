"""The examples of the documentation run and give what stands below them.

``sql`` blocks run as ``watersmeet run --bounded`` runs a file, ``python`` blocks in one namespace, both in one
workspace per page; ``wmt`` blocks run in the harness in several ways.  The expected output of a block is the next
block, if that is ``text``, or the table directly below a ``python`` block: all its lines must be printed, and no other
result rows.  A comment above a block marks it:

``<!-- fails: TEXT -->``    the block must fail with an error that holds TEXT
``<!-- planned -->``        the block's queries are explained, not run
``<!-- files: PATH -->``    the block is a file that later blocks read
``<!-- commands -->``       each line is ``watersmeet run FILE`` with ``--drain`` or ``--bounded``, and is carried out
``<!-- not run -->``        the block is only shown

Paths that begin with ``data/`` lie in the test's own folder.  What stands in ``examples`` also stands in the guide.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import ALL
from tests.support.ways import ways
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.inspection.selecting import StateRows
from watersmeet.runtime.query_mode import QueryMode
from watersmeet.session.results import Batch, Message, Plan, Result, Started, Stream, Table
from watersmeet.session.session import Session
from watersmeet.session.table_queries import rows_of
from watersmeet.sql.parse import parse
from watersmeet.testing.notation import parse_cases
from watersmeet.testing.runner import run_case

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted((DOCS / "sql").glob("*.md"))]
EXAMPLES = ROOT / "examples"
_FENCE = re.compile(
    r"(?:^<!--\s*(?P<mark>[^\n]*?)\s*-->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_TABLE = re.compile(r"\s*(?P<text>(?:^\|.*\n)+)", re.MULTILINE)
_ROW = re.compile(r"[+|-] ")
_RUN_KINDS = ("sql", "python")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: its language, its text, the comment above it and the output that it must give."""

    kind: str
    text: str
    mark: str
    line: int
    output: tuple[str, ...] | None


def blocks_of(page: Path) -> list[Block]:
    found = list(_FENCE.finditer(text := page.read_text(encoding="utf-8")))
    blocks = []
    for number, match in enumerate(found):
        follows = found[number + 1] if number + 1 < len(found) else None
        output = None
        if match["kind"] == "python" and (table := _TABLE.match(text, match.end())):
            output = tuple(table["text"].splitlines())
        elif follows is not None and follows["kind"] == "text":
            output = tuple(line.strip() for line in follows["text"].splitlines() if line.strip())
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(Block(match["kind"], match["text"], match["mark"] or "", line, output))
    return blocks


def pages_with(*kinds: str, slow: tuple[str, ...] = ()) -> list[object]:
    """The pages that have such blocks; those whose folder or name is ``slow`` are left to `make test-all`."""
    return [
        pytest.param(
            page,
            id=page.relative_to(ROOT).with_suffix("").as_posix().removeprefix("docs/"),
            marks=[pytest.mark.slow] if {page.parent.name, page.stem} & {*slow} else [],
        )
        for page in PAGES
        if any(block.kind in kinds and block.mark != "not run" for block in blocks_of(page))
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("page", pages_with("wmt"))
def test_cases_of_the_notation(page: Path) -> None:
    cases = [case for block in blocks_of(page) if block.kind == "wmt" for case in parse_cases(block.text, page.name)]
    failures = [
        f"{case.title} ({name}): {failure.report}"
        for case in cases
        for name, variant, is_slow in ways(case)
        if (ALL or not is_slow) and (failure := run_case(variant)) is not None
    ]
    assert not failures, "\n".join(failures)


@pytest.mark.spark
@pytest.mark.parametrize("page", pages_with(*_RUN_KINDS, slow=("sql", "migration")))
def test_examples_run(
    page: Path,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # `watersmeet.connect()` in an example gets this Spark, and its default workspace is the test's folder
    monkeypatch.setattr("watersmeet.session.session.open_spark", lambda *_: spark)
    monkeypatch.chdir(tmp_path)
    session = Session(spark, tmp_path / ".watersmeet")
    namespace: dict[str, object] = {}
    # paths in SQL are the JVM's, which has its own working folder
    here = f"{tmp_path}/data/"
    (tmp_path / "data").mkdir()
    for folder in re.findall(r"path = 'data/([\w/]+)'", page.read_text(encoding="utf-8")):
        (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
    for block in blocks_of(page):
        where = f"{page.name}:{block.line}"
        text = re.sub(r"(?<=['\"])data/", lambda _: here, block.text)
        if block.mark.startswith("files:"):
            (tmp_path / path_of(block)).write_text(text)
        elif block.mark == "not run":
            continue
        elif block.mark == "commands":
            lines = [line for command in text.splitlines() for line in run_command(session, command)]
            expect(block, [*lines, *capsys.readouterr().out.splitlines()], where)
        elif block.kind == "sql":
            run_sql(session, block, text, where, capsys)
        elif block.kind == "python":
            exec(compile(text, where, "exec"), namespace)
            expect(block, capsys.readouterr().out.splitlines(), where)
    session.stop()


def path_of(block: Block) -> str:
    return block.mark.removeprefix("files:").strip()


def test_examples_are_those_of_the_guide() -> None:
    told = {path_of(block): block.text for block in blocks_of(ROOT / "docs" / "guide.md") if "files:" in block.mark}
    there = {path for path in told if (EXAMPLES / "orders" / path).exists()}
    assert there == {"job.sql", "data/orders/1.json", "data/payments/1.json"}
    for path in there:
        assert (EXAMPLES / "orders" / path).read_text(encoding="utf-8") == told[path]


def run_command(session: Session, line: str) -> list[str]:
    """What ``watersmeet run FILE --MODE`` gives, in this session."""
    program, command, file, mode = shlex.split(line, comments=True)
    assert (program, command) == ("watersmeet", "run")
    return carry_out(session, Path(file).read_text(), QueryMode(mode.removeprefix("--")))


def run_sql(session: Session, block: Block, text: str, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    if block.mark.startswith("fails:"):
        with pytest.raises(WatersmeetError, match=re.escape(block.mark.removeprefix("fails:").strip())):
            carry_out(session, text)
        return
    if block.mark == "planned":
        plans = [session.explain(f"EXPLAIN {statement.source}") for statement in parse(text)]
        lines = [line for plan in plans for line in plan.splitlines()]
    else:
        lines = carry_out(session, text)
    expect(block, [*lines, *capsys.readouterr().out.splitlines()], where)


def carry_out(session: Session, text: str, mode: QueryMode = QueryMode.BOUNDED) -> list[str]:
    return [line for result in session.run(text, mode=mode) for line in told(result)]


def told(result: Result) -> list[str]:
    """What a statement gave, as lines; queries are waited for, and every row must be accounted for."""
    match result:
        case Message(text) | Plan(text):
            return text.splitlines()
        case StateRows():
            return [" | ".join(map(str, row)).strip() for row in (result.columns, *result.rows())]
        case Table(columns, rows):
            return [" | ".join(row).strip() for row in (columns, *rows)]
        case Started(query):
            assert query.wait(120)
            report = query.report()
            for alias, count in report.rows_in.items():
                parts = (report.used, report.filtered, report.late, report.quarantined)
                assert count == sum(part.get(alias, 0) for part in parts)
            return []
        case Batch(frame):
            return [" | ".join(map(str, row)).strip() for row in (frame.columns, *rows_of(frame))]
        case Stream():
            return []


def expect(block: Block, lines: Sequence[str], where: str) -> None:
    if block.output is None:
        return
    given = [line.strip() for line in lines if line.strip()]
    missing = [line for line in block.output if line not in given]
    assert not missing, f"{where}: not given: {missing}; given: {given}"
    rows, wanted = (sorted(line for line in part if _ROW.match(line)) for part in (given, block.output))
    assert rows == wanted, f"{where}: other rows"
