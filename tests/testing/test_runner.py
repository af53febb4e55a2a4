"""Reports on failing cases and their lines, for typical mistakes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pytest

from watersmeet.catalog.streams import StreamDef
from watersmeet.engine.control_events import Event
from watersmeet.errors import LimitError
from watersmeet.sql.statements import Query
from watersmeet.testing.case import Case
from watersmeet.testing.harness import Harness
from watersmeet.testing.notation import parse_cases
from watersmeet.testing.regroup import all_at_once, row_by_row, with_restarts
from watersmeet.testing.rig import StepInput, StepOutcome
from watersmeet.testing.runner import Failure, run_case

CASE = """\
=== a left join
CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
SELECT o.id, p.ts FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS EMIT FINAL;
>>> o
1, 5
2, 6
>>> p
1, 8
<<<
+ 1, 8
state 3
>>> end
<<<
+ 2, NULL
"""
ONE_QUERY = "hint: CREATE STREAM statements come first; write another case for a second query"
ERROR = "o has no column idd (line 3, column 8)\nhint: did you mean id?"


def case(old: str = "", new: str = "") -> Case:
    assert old in CASE
    return parse_cases(CASE.replace(old, new, 1) if old else CASE)[0]


def failure(case: Case) -> tuple[int, str]:
    found = run_case(case)
    assert found is not None
    return found.line, found.report


def test_a_case_that_passes() -> None:
    for run in (case(), all_at_once(case()), row_by_row(case()), with_restarts(case())):
        assert run_case(run) is None


@pytest.mark.parametrize(
    ("old", "new", "line", "report"),
    [
        (">>> p\n", ">>> pp\n", 8, "the script creates no stream pp\nhint: did you mean p?"),
        (
            "<<<\n+ 1, 8",
            ">>> END\n<<<\n+ 1, 8",
            10,
            "the script creates no stream END\nhint: controls are lower case: >>> end",
        ),
        ("state 3", ">>> idle q\n<<<", 12, "the script creates no stream q\nhint: known here: o, p"),
        ("state 3", ">>> advance q 7\n<<<", 12, "the script creates no stream q\nhint: known here: o, p"),
        ("state 3", "late pp 0", 10, "the script creates no stream pp\nhint: did you mean p?"),
        ("2, 6\n", "2, 6, 7\n", 7, "the row (2, 6, 7) has 3 cells, its stream or query 2 columns"),
        ("2, 6\n", "2, six\n", 7, "'six' is not a value of type BIGINT\na whole number is expected"),
        ("+ 2, NULL", "+ 2", 15, "the row (2) has 1 cell, its stream or query 2 columns"),
        ("+ 2, NULL", "+ 2, x", 15, "'x' is not a value of type BIGINT\na whole number is expected"),
        (
            "state 3",
            ">>> advance o soon\n<<<",
            12,
            "'soon' is not a value of type BIGINT\na whole number is expected",
        ),
        ("+ 1, 8", "+ 1, 9", 10, "1 missing, 1 unexpected\nunexpected + 1, 8\nmissing    + 1, 9"),
        ("state 3", "state 4", 10, "state: expected 4, found 3"),
        ("state 3", "late o 1", 10, "late o: expected 1, found 0"),
        ("SELECT o.id", "SELECT o.idd", 4, "o has no column idd (line 4, column 8)\nhint: did you mean id?"),
        (
            "SELECT",
            "INSERT INTO r SELECT",
            4,
            "there is no stream r (line 4, column 1)\nhint: known here: o, p",
        ),
        (
            "EMIT FINAL;",
            "EMIT FINAL; SELECT id FROM o;",
            4,
            f"a test has one query, and nothing may follow it (line 4, column 94)\n{ONE_QUERY}",
        ),
        (
            "SELECT",
            "INSERT INTO o VALUES (1, 2);\nSELECT",
            4,
            "a test takes CREATE STREAM, TABLE and INDEX statements and one query (line 4, column 1)",
        ),
        (
            ">>> o\n1, 5\n2, 6",
            '>>> o raw\n{"id": 1, "ts": 5}\n{"id": 2, "ts": "x"}',
            10,
            'state: expected 3, found 2\nquarantined (o): ts: "x" does not fit BIGINT',
        ),
        (
            "1, 8\n<<<\n+ 1, 8\nstate 3",
            "1, 8\n>>> o raw\nno JSON\n<<<\n+ 1, 8\n>>> p\n3, 9\n<<<\n+ 3, 9",
            16,
            "1 missing, 0 unexpected\nmissing    + 3, 9\nquarantined (o): not valid JSON",
        ),
        (
            "state 3\n",
            "state 3\n>>> o\n3, 100\n>>> p\n3, 100\n<<<\n+ 2, NULL\n+ 3, 100\n>>> p\n2, 7\n<<<\n+ 2, 7\n",
            22,
            "1 missing, 0 unexpected\nmissing    + 2, 7\nlate so far: 1 of p (p)",
        ),
        (
            "o.id, p.ts FROM o LEFT JOIN p ON o.id = p.id WITHIN INTERVAL '10' SECONDS EMIT FINAL;",
            "id, ts FROM o;",
            8,
            "the query does not read the stream p\nhint: known here: o",
        ),
    ],
)
def test_mistakes(old: str, new: str, line: int, report: str) -> None:
    assert failure(case(old, new)) == (line, report)


def test_a_script_without_a_query() -> None:
    without = parse_cases("=== t\nCREATE STREAM o (id INT);\n>>> o\n1\n<<<")[0]
    assert failure(without) == (1, "a test needs a query after its CREATE STREAM statements")


@pytest.mark.parametrize(
    ("options", "report"),
    [
        ("connector = 'files', path = 'x', pathh = 'y'", "files has no option 'pathh' (line 2, column 123)"),
        ("connector = 'filez'", "there is no connector 'filez' (line 2, column 90)"),
        ("frobs = 3", "a stream without a connector has no option 'frobs'"),
    ],
)
def test_options_are_checked_as_the_session_does(options: str, report: str) -> None:
    line, found = failure(case("'s')", f"'s', {options})"))
    assert (line, report in found) == (2, True), found


def test_options_of_a_derived_stream_are_checked() -> None:
    derived = "CREATE STREAM d WITH (connector = 'files', pathh = 'y') AS SELECT o.id"
    line, found = failure(case("SELECT o.id", derived))
    assert (line, "files has no option 'pathh' (line 4, column 44)" in found) == (4, True), found


def test_raw_text_of_a_format_that_needs_spark() -> None:
    csv = case("'s')", "'s', connector = 'files', path = 'x', format = 'csv')").script
    text = f"=== t\n{csv}\n>>> o raw\n1,5\n<<<"
    assert failure(parse_cases(text)[0]) == (
        5,
        "o has format csv, and without Spark only json and debezium-json are read\nhint: run the case with --spark",
    )


def test_expressions_that_need_spark_are_reported() -> None:
    line, report = failure(case("SELECT o.id", "SELECT xxhash64(o.id) AS x"))
    assert line == 1
    assert "xxhash64 does not exist" in report
    assert "run the case with --spark" in report
    _, report = failure(case("EMIT", "WHERE xxhash64(o.id) > 1 EMIT"))
    assert "an expression over o cannot be evaluated" in report
    assert "run the case with --spark" in report


@pytest.mark.parametrize(
    ("wanted", "report"),
    [
        ("o has no column idd\nline 3, column 8\ndid you mean id?", None),
        ("idd\nline 4", f"missing in the error: line 4\nthe error is:\n{ERROR}"),
        ("IDD", f"missing in the error: IDD\nthe error is:\n{ERROR}"),
    ],
)
def test_expected_errors_count_lines_from_the_script(wanted: str, report: str | None) -> None:
    script = case("o.id, p.ts", "o.idd, p.ts").script
    found = run_case(parse_cases(f"=== t\n{script}\n!!!\n{wanted}")[0])
    assert (found and found.report) == report


def test_a_missing_error() -> None:
    (expecting,) = parse_cases(f"=== t\n{case().script}\n!!!\nnope")
    assert failure(expecting) == (1, "the script raises no error, but this one was expected:\nnope")


class Broken(Harness):
    """A rig whose step returns a fixed outcome, or raises a fixed error."""

    outcome: StepOutcome | LimitError

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        if isinstance(self.outcome, LimitError):
            raise self.outcome
        return self.outcome


def run_broken(outcome: StepOutcome | LimitError) -> Failure | None:
    def make(streams: Mapping[str, StreamDef], query: Query) -> Broken:
        rig = Broken(streams, query)
        rig.outcome = outcome
        return rig

    return run_case(case(), make)


def test_an_error_in_a_step_names_the_step() -> None:
    assert run_broken(LimitError("the state is full")) == Failure(5, "the state is full")


def test_a_retraction_of_a_row_never_emitted() -> None:
    broken = run_broken(StepOutcome([(-1, (1, None))]))
    assert broken == Failure(10, "deleted more often than inserted:\n1, NULL")


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_advance_to_a_time_is_exact_in_any_zone(kind: str, far_from_utc: None) -> None:
    seen: list[int] = []

    class Recording(Harness):
        def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
            seen.extend(event.frontier for event in events)
            return super().step(inputs, events)

    text = (
        f"=== t\nCREATE STREAM a (id INT, ts {kind}, WATERMARK FOR ts AS ts);\nSELECT id FROM a;\n"
        ">>> a\n1, 00:00\n>>> advance a 1970-01-02 00:00:00.000007\n<<<\n+ 1\n"
    )
    assert run_case(parse_cases(text)[0], Recording) is None
    assert seen == [86_400_000_007]


class Recorder(Harness):
    """Return what the steps feed, without running them."""

    def step(self, inputs: Mapping[str, StepInput], events: Sequence[Event] = ()) -> StepOutcome:
        fed.append({name: list(given.rows) for name, given in inputs.items()})
        return StepOutcome()


fed: list[dict[str, list[tuple[object, ...]]]] = []
CHANGING = """\
=== t
CREATE STREAM o (id INT, ts BIGINT, WATERMARK FOR ts AS ts) WITH (event_time_unit = 's');
CREATE STREAM p (id INT, ts BIGINT, WATERMARK FOR ts AS ts) PRIMARY KEY (id) WITH (event_time_unit = 's')
  SETTINGS mode = 'versioned_kv';
SELECT o.id, p.ts FROM o LEFT JOIN p FOR SYSTEM_TIME AS OF o.ts ON o.id = p.id;
>>> p
- 1, 5
2, 6
+ 3, 7
<<<
"""


def test_signs_are_fed_with_their_rows() -> None:
    (signed,) = parse_cases(CHANGING)
    fed.clear()
    assert run_case(signed, Recorder) is None
    assert fed == [{"p": [(1, 5, -1), (2, 6), (3, 7, 1)]}]
    fed.clear()
    assert run_case(row_by_row(signed), Recorder) is None
    assert fed == [{"p": [(1, 5, -1)]}, {"p": [(2, 6)]}, {"p": [(3, 7, 1)]}]


def test_signs_are_refused_for_append_only_streams() -> None:
    (appended,) = parse_cases(CHANGING.replace(">>> p", ">>> o"))
    assert failure(appended) == (
        7,
        (
            "a row starts with a sign, but o only appends rows\n"
            "hint: leave it out, or put a string that starts with a sign in quotes"
        ),
    )
    (declared,) = parse_cases(CHANGING.replace("p (id INT,", "p (id INT, _tp_delta INT,"))
    assert failure(declared) == (
        7,
        "a row starts with a sign, but p declares _tp_delta\nhint: write it in the cell of _tp_delta",
    )
