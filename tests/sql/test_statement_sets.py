"""EXECUTE STATEMENT SET: what it holds, where it ends, and what is wrong with one."""

from __future__ import annotations

import pytest

from watersmeet.errors import Position, SqlSyntaxError, UnsupportedError, WatersmeetError
from watersmeet.sql.parse import is_complete, parse
from watersmeet.sql.statements import CreateStream, Explain, Select, StatementSet

SET = """EXECUTE STATEMENT SET BEGIN
  INSERT INTO x SELECT CASE WHEN a.k > 1 THEN 2 END AS c FROM a JOIN b ON a.k = b.k;
  -- END;
  INSERT INTO y (v) SELECT ';END' AS v FROM a JOIN c ON a.k = c.k SETTINGS buckets = 2;
END"""


def test_a_set_between_other_statements() -> None:
    created, found, selected = parse(f"CREATE STREAM a (k INT); {SET}; SELECT k FROM a")
    assert isinstance(created, CreateStream)
    assert isinstance(selected, Select)
    assert isinstance(found, StatementSet)
    assert (found.source, found.position) == (SET, Position(1, 26))
    assert [insert.stream for insert in found.inserts] == ["x", "y"]
    assert [insert.columns for insert in found.inserts] == [(), ("v",)]
    assert found.inserts[1].position == Position(4, 3)
    assert found.inserts[1].source.endswith("buckets = 2")


@pytest.mark.parametrize("end", ["", ";", " ;\n-- done"])
def test_explain_and_the_case_of_keywords(end: str) -> None:
    (found,) = parse(f"explain {SET.replace('EXECUTE STATEMENT SET BEGIN', 'Execute statement set begin')}{end}")
    assert isinstance(found, Explain)
    assert found.query is None
    assert isinstance(found.statement, StatementSet)


def test_a_set_is_complete_with_its_end() -> None:
    assert is_complete(f"{SET};")
    assert is_complete(f"SHOW STREAMS; {SET}; SHOW STREAMS;")
    assert not is_complete(SET)
    assert not is_complete(SET.removesuffix("END"))
    assert not is_complete("EXECUTE STATEMENT SET BEGIN;")
    assert not is_complete(f"{SET[:-3]} INSERT INTO z SELECT CASE WHEN k THEN 1 END;")
    for wrong in ("EXECUTE;", "EXECUTE x; SELECT 1;", "EXECUTE STATEMENT SET BEGIN END;", f"{SET[:-5]} END;"):
        assert is_complete(wrong), wrong


@pytest.mark.parametrize(
    ("text", "error", "what", "position"),
    [
        ("EXECUTE", SqlSyntaxError, "expected STATEMENT after EXECUTE", (1, 8)),
        ("EXECUTE STATEMENT BEGIN", SqlSyntaxError, "found 'BEGIN', expected SET after EXECUTE STATEMENT", (1, 19)),
        ("EXECUTE STATEMENT SET BEGIN END;", SqlSyntaxError, "found 'END', expected INSERT INTO after BEGIN", (1, 29)),
        ("EXECUTE STATEMENT SET BEGIN", SqlSyntaxError, "expected END after the statements of the set", (1, 28)),
        (f"{SET[:-3]} SELECT k FROM a;", SqlSyntaxError, "expected END after the statements of the set", (5, 18)),
        (f"{SET[:-3]} END x;", SqlSyntaxError, "expected END after the statements of the set", (5, 8)),
        (f"{SET[:-3]} SHOW STREAMS; END", UnsupportedError, "consists of INSERT INTO ... SELECT", (5, 2)),
        (f"{SET[:-3]} INSERT INTO x VALUES (1); END", UnsupportedError, "consists of INSERT INTO ... SELECT", (5, 2)),
        (f"{SET[:-3]} {SET.splitlines()[1]} END", UnsupportedError, "this statement is in the set already", (5, 4)),
        (f"{SET[:-3]} INSERT INTO z SELECT FROM; END", SqlSyntaxError, "found", (5, 23)),
        (f"{SET[:-5]} END;", SqlSyntaxError, "found 'END', expected ';' after the last statement of the set", (4, 88)),
        ("EXECUTE STATEMENT SET `BEGIN`", SqlSyntaxError, "expected BEGIN after EXECUTE STATEMENT SET", (1, 23)),
        (f"{SET}; END;", SqlSyntaxError, "found 'END', expected SELECT", (5, 6)),
    ],
)
def test_an_error_says_where(text: str, error: type[WatersmeetError], what: str, position: tuple[int, int]) -> None:
    with pytest.raises(error, match=what) as found:
        parse(text)
    assert found.value.position == Position(*position)
