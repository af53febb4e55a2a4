"""Window functions with several PARTITION BYs: which of them is computed last."""

from __future__ import annotations

import pytest

from watersmeet.testing.harness import Harness, load_script

STREAM = "CREATE STREAM a (k STRING, x INT, ts BIGINT, WATERMARK FOR ts AS ts);\n"
FIRST, SECOND = "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x)", "sum(x) OVER ()"


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT x, {FIRST} AS n, {SECOND} AS s FROM a QUALIFY n <= 2 AND s > 1",
        f"SELECT x, {SECOND} AS s, {FIRST} AS n FROM a QUALIFY {FIRST} <= 2",
        f"SELECT x, s FROM (SELECT x, {FIRST} AS n, {SECOND} AS s FROM a) WHERE n <= 2",
    ],
)
def test_the_rank_with_a_limit_is_last(query: str) -> None:
    """A rank below it would be shown: each row at the front would change all rows behind it."""
    harness = Harness(*load_script(STREAM + query))
    assert [each.name for each in harness.plan.operators] == ["subquery_over", "top_n"]


def test_without_a_limit_the_order_is_that_of_the_text() -> None:
    harness = Harness(*load_script(f"{STREAM}SELECT {FIRST} AS n, {SECOND} AS s FROM a"))
    assert [each.name for each in harness.plan.operators] == ["subquery_over", "over"]
