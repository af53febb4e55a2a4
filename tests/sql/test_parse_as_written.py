"""The parser on the documents that the project grew from, as written there, and on mutations of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import WatersmeetError
from watersmeet.expressions.nodes import Within
from watersmeet.sql.parse import is_complete, parse
from watersmeet.sql.statements import CreateStream, InsertSelect, Query, Select, Statement

AS_WRITTEN = {
    "fraud": """
        -- Detect suspicious transaction patterns
        CREATE STREAM fraud_alerts AS
        SELECT
            t1.user_id, t1.amount as first_amount, t2.amount as second_amount,
            t1.timestamp as first_time, t2.timestamp as second_time, 'RAPID_TRANSACTIONS' as alert_type
        FROM transactions t1
        INNER JOIN transactions t2
            ON t1.user_id = t2.user_id
            AND t2.timestamp > t1.timestamp
        WITHIN INTERVAL '2' MINUTES
        WHERE t1.amount > 1000
          AND t2.amount > 1000
          AND ABS(t1.amount - t2.amount) < 100;""",
    "journey": """
        CREATE STREAM conversion_funnel AS
        SELECT pv.user_id, pv.page_url as landing_page, p.timestamp - pv.timestamp as time_to_purchase_ms
        FROM page_views pv
        INNER JOIN purchases p ON pv.user_id = p.user_id
        WITHIN INTERVAL '30' MINUTES
        WHERE pv.page_url LIKE '%product%'
          AND p.amount > 50;""",
    "sensors": """
        CREATE STREAM environmental_alerts AS
        SELECT t.device_id, t.timestamp,
            CASE
                WHEN t.temperature > 80 AND p.pressure > 1013.25
                THEN 'HIGH_TEMP_HIGH_PRESSURE'
                ELSE 'NORMAL'
            END as alert_level
        FROM temperature_sensors t
        INNER JOIN pressure_sensors p
            ON t.device_id = p.device_id
        WITHIN INTERVAL '1' MINUTE
        WHERE ABS(t.timestamp - p.timestamp) < 30000;  -- 30 second tolerance""",
    "behaviour": """
        CREATE STREAM user_behavior_sequence AS
        SELECT login.user_id, action.action_type, logout.logout_time - login.login_time as session_duration_ms
        FROM user_logins login
        INNER JOIN user_actions action
            ON login.user_id = action.user_id
        INNER JOIN user_logouts logout
            ON login.user_id = logout.user_id
            AND logout.session_id = login.session_id
        WITHIN INTERVAL '4' HOURS
        WHERE action.action_time BETWEEN login.login_time AND logout.logout_time
        ORDER BY login.login_time;""",
    "tests": """
        SELECT l.id, r.id FROM left_stream l
        INNER JOIN right_stream r ON l.key = r.key
        WITHIN INTERVAL '5' MINUTES;

        SELECT * FROM stream1 s1
        LEFT JOIN stream2 s2 ON s1.user_id = s2.user_id AND s1.session_id = s2.session_id
        WITHIN INTERVAL '10' MINUTES;

        SELECT s1.event_id, s2.correlation_id
        FROM events s1
        FULL OUTER JOIN correlations s2 ON s1.trace_id = s2.trace_id
        WITHIN INTERVAL '30' SECONDS
        WHERE s1.event_type = 'user_action';""",
    "semi and anti": """
        SELECT * FROM a
        WHERE EXISTS (SELECT 1 FROM b WHERE b.id = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR);
        SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id) AND x IN (SELECT x FROM c);
        SELECT * FROM a WHERE a.y NOT IN (SELECT y FROM d) AND a.k IS NOT DISTINCT FROM a.l;""",
    "bidirectional": """
        SELECT *, _tp_delta FROM left_mu JOIN right_mu ON left_mu.k = right_mu.kk EMIT CHANGELOG;
        SELECT count() FROM table(left_mu) AS l JOIN table(right_mu) AS r ON l.k = r.kk;
        SELECT k, k1, kk, kk1, count() FROM left_mu JOIN right_mu ON left_mu.k = right_mu.kk GROUP BY k, k1, kk, kk1
        SETTINGS default_hash_join='hybrid', default_hash_table='hybrid';
        INSERT INTO left_mu(i, k, k1) VALUES (1, 'a', 'b');""",
}


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_statements_as_written(name: str) -> None:
    statements = parse(AS_WRITTEN[name])
    assert len(statements) == AS_WRITTEN[name].count(";")
    windows = sum(len(list(query.select.find_all(Within))) for query in map(_query_of, statements) if query)
    assert windows == AS_WRITTEN[name].count("WITHIN")


def _query_of(statement: Statement) -> Query | None:
    return statement.query if isinstance(statement, (Select, CreateStream, InsertSelect)) else None


WORDS = sorted({word for sql in AS_WRITTEN.values() for word in sql.split()} | set("();,.'`-/*$[]<>=:?"))


@given(
    st.sampled_from(sorted(AS_WRITTEN)),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(["", *WORDS])), max_size=4),
)
def test_mutated_statements_parse_or_fail_with_a_position(name: str, changes: list[tuple[int, str]]) -> None:
    words = AS_WRITTEN[name].split()
    for place, word in changes:
        words[place % len(words)] = word
    text = " ".join(words)
    is_complete_or_not(text)
    try:
        parse(text)
    except WatersmeetError as error:
        assert error.position is not None  # noqa: PT017
        assert error.position.line == 1  # noqa: PT017


def is_complete_or_not(text: str) -> None:
    """Check that any text has an answer or a syntax error, because the shell asks for every text."""
    try:
        assert is_complete(text) in (True, False)
    except WatersmeetError as error:
        assert error.position is not None  # noqa: PT017
