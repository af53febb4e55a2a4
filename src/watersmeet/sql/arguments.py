"""Arguments that sqlglot's builders of functions drop without a word, because they know none in that place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp


def drops_arguments(call: exp.Expr, arguments: Sequence[exp.Expr]) -> bool:
    """Whether a call does not hold all of the arguments that it was built of.

    It may hold some in another form, as the unit ``MM`` is MONTH; then it holds as many.
    """
    if isinstance(call, exp.IgnoreNulls | exp.RespectNulls):  # TRUE or FALSE, of which these are made
        return False
    held = [each for value in call.args.values() for each in (value if isinstance(value, list) else [value])]
    if sum(isinstance(each, exp.Expr) for each in held) >= len(arguments):
        return False
    words = set(_words(call))
    return not all(words.issuperset(_words(each)) for each in arguments)


def _words(tree: exp.Expr) -> Iterator[str]:
    """The names and literals in a tree."""
    return (node.name.upper() for node in tree.walk() if isinstance(node, exp.Literal | exp.Identifier | exp.Var))
