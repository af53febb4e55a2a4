"""json_tuple: the fields of a JSON object as columns of its row."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from watersmeet.errors import BindError
from watersmeet.expressions.positions import position_of
from watersmeet.expressions.text import plain_sql

#: What Spark's JSON paths cannot have in a name.
_NO_NAME = "'?*"


def json_fields(call: exp.Anonymous) -> Iterator[exp.Expr]:
    """The values of ``json_tuple(text, 'a', 'b')``, as get_json_object has them: text, or NULL.

    Raises ``BindError`` without a name, and for one that is no plain text.
    """
    text, *names = call.expressions or [None]
    if text is None or not names:
        raise BindError(
            "json_tuple takes a text and the names of fields",
            hint="write json_tuple(text, 'a', 'b')",
            position=position_of(call),
        )
    for name in names:
        if not (isinstance(name, exp.Literal) and name.is_string and name.name and not set(name.name) & set(_NO_NAME)):
            raise BindError(
                f"json_tuple: {plain_sql(name)} is no name of a field",
                detail=f"a name is a text without {' '.join(_NO_NAME)}",
                hint="for other fields use from_json",
                position=position_of(name) or position_of(call),
            )
        path = exp.JSONPath(expressions=[exp.JSONPathRoot(), exp.JSONPathKey(this=name.name)])
        yield exp.JSONExtractScalar(this=text.copy(), expression=path)
