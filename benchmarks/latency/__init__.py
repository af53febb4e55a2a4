"""Latency over Kafka: from just before a record is handed to a producer until a consumer has read its result.

``watersmeet bench latency`` measures several queries at several rates, with one engine after the other over fresh
topics:

    load.py:   producer ─ topics l, r ─ engine ─ topic o ─ consumer
    engines.py, run_flink.py:              └ a process of its own

Event times are the clock when a record is produced, so windows close in real time.  Records have numbers, and the load
keeps the time of each; a result names the numbers of its records.  expected.py compares all results with those that the
sent records must have.
"""
