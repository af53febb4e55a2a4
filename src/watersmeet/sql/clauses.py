"""The clauses that a query may have: which can follow the last one, and which of Spark's are refused."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.errors import UnsupportedError as LostInTranslation

from watersmeet.errors import UnsupportedError
from watersmeet.expressions.positions import position_of
from watersmeet.sql.collation import refuse_collations
from watersmeet.sql.failures import Failures

# In the order of the grammar: the name of sqlglot's arg, and the keyword.
CLAUSE_ORDER = (
    ("from_", "FROM"),
    ("joins", "JOIN"),
    ("where", "WHERE"),
    ("group", "GROUP BY"),
    ("having", "HAVING"),
    ("order", "ORDER BY"),
    ("limit", "LIMIT"),
)
#: The clauses after a join's condition, by their first word: the arg of the join, and the second word.
BOUNDS = {"WITHIN": ("within", None), "GRACE": ("grace", "PERIOD"), "ALLOWED": ("lateness", "LATENESS")}
AFTER_JOIN = (("within", "WITHIN"), ("grace", "GRACE PERIOD"), ("lateness", "ALLOWED LATENESS"))

SELECT_CLAUSES = {
    "with_",
    "laterals",
    "qualify",
    "distinct",
    "expressions",
    "offset",
    "windows",
    *(arg for arg, _ in CLAUSE_ORDER),
}
SET_OPERATION_CLAUSES = {"with_", "this", "expression", "distinct", "order", "limit", "offset"}
TABLE_CLAUSES = {"this", "db", "catalog", "alias", "version", "joins"}
SUBQUERY_CLAUSES = {"this", "alias", "version", "with_", "joins"}
JOIN_CLAUSES = {"this", "on", "using", "side", "kind", "method", "within", "grace", "lateness", "match_condition"}
LATERAL_CLAUSES = {"this", "view", "outer", "alias", "ordinality"}

ALLOWED: tuple[tuple[type[exp.Expr], set[str]], ...] = (
    (exp.Select, SELECT_CLAUSES),
    (exp.SetOperation, SET_OPERATION_CLAUSES),
    (exp.Table, TABLE_CLAUSES),
    (exp.Subquery, SUBQUERY_CLAUSES),
    (exp.Join, JOIN_CLAUSES),
    (exp.Lateral, LATERAL_CLAUSES),
    (exp.Distinct, {"expressions"}),
    (exp.Star, {"except_", "replace"}),
)
FOREIGN_NODES: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Command, "this statement"),
    (exp.DDL, "a statement that changes data, inside a query,"),
    (exp.DML, "a statement that changes data, inside a query,"),
    (exp.Pivot, "PIVOT"),
    (exp.TableSample, "TABLESAMPLE"),
    (exp.Parameter, "a parameter"),
    (exp.Placeholder, "a parameter"),
)
NAMES = {
    "ilike": "* ILIKE",
    "rename": "* RENAME",
    "windows": "WINDOW here",
    "into": "INTO",
    "on": "DISTINCT ON",
    "sample": "TABLESAMPLE",
    "pivots": "PIVOT",
    "when": "AT or BEFORE",
    "match_condition": "MATCH_CONDITION outside an ASOF JOIN",
    "kind": "SELECT AS",
    "cross_apply": "APPLY",
}


def clauses_after(query: exp.Expr) -> list[str]:
    """Return the keywords that may follow the part of a query read so far, without EMIT and SETTINGS."""
    if not isinstance(query, exp.Select):
        return ["ORDER BY", "LIMIT"]
    present = [index for index, (arg, _) in enumerate(CLAUSE_ORDER) if query.args.get(arg)]
    last = max(present, default=-1)
    following = [name for _, name in CLAUSE_ORDER[last + 1 :]]
    if last == -1:
        return ["','", "FROM"]
    joins = query.args.get("joins")
    if joins and CLAUSE_ORDER[last][0] == "joins":
        missing = [name for arg, name in AFTER_JOIN if not joins[-1].args.get(arg)]
        following = [*missing, "JOIN", *following]
    return [name for name in following if name != "HAVING" or query.args.get("group")] + ["UNION"]


def refuse_foreign_clauses(query: exp.Expr, failures: Failures) -> None:
    """Raise UnsupportedError for a clause that sqlglot parses and no later stage reads, and for collations."""
    refuse_collations(query, failures)
    for node in query.walk():
        _check_star(node, failures)
        for kind, name in FOREIGN_NODES:
            if isinstance(node, kind):
                raise _unsupported(name, node, failures)
        for kind, allowed in ALLOWED:
            if isinstance(node, kind):
                for key, value in node.args.items():
                    if value and key not in allowed:
                        raise _unsupported(NAMES.get(key, key.strip("_").upper()), value, failures, node)


def _check_star(node: exp.Expr, failures: Failures) -> None:
    """Raise UnsupportedError for an alias of ``*``, and for EXCEPT where no columns are selected or of no columns."""
    if not isinstance(node, exp.Star):
        return
    star = node.parent if isinstance(node.parent, exp.Column) else node
    if isinstance(star.parent, exp.Alias):
        raise failures.unsupported_at("* takes no alias", position_of(star))
    left_out = node.args.get("except_") or ()
    if left_out and not isinstance(star.parent, exp.Select):
        raise failures.unsupported_at("* EXCEPT is for the SELECT list", position_of(star))
    for each in left_out:
        if not isinstance(each, exp.Column) or isinstance(each.this, exp.Star):
            raise failures.unsupported_at("* EXCEPT takes names of columns", position_of(each))


def refuse_lost_parts(query: exp.Expr, failures: Failures) -> None:
    """Raise UnsupportedError for a call of which sqlglot would leave out a part when it writes the SQL for Spark."""
    for node in query.walk(prune=_is_whole_call):
        if _is_whole_call(node) and (reason := _lost_part(node)) is not None:
            inner = [part for part in node.walk(bfs=False) if isinstance(part, exp.Func)]
            lost = next((part for part in reversed(inner) if _lost_part(part) is not None), node)
            raise failures.unsupported_at(
                f"a function is not supported with these arguments: {reason}",
                position_of(lost),
                hint="write it as the documentation of Spark SQL has it",
            )


def _is_whole_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Func) and node.find(exp.Query) is None


def _lost_part(call: exp.Expr) -> str | None:
    try:
        call.sql(dialect="spark", unsupported_level=ErrorLevel.RAISE)
    except LostInTranslation as error:
        return str(error)
    return None


def _unsupported(name: str, at: object, failures: Failures, owner: exp.Expr | None = None) -> UnsupportedError:
    parts = at if isinstance(at, list) else [at]
    place = next((part for part in parts if isinstance(part, exp.Expr)), owner)
    return failures.unsupported_at(f"{name} is not supported", position_of(place))
