"""Operators with workers of their own: what they change of a session that other threads use too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from watersmeet.runtime.task_frames import own_workers


def test_other_threads_may_copy_the_environment_meanwhile() -> None:
    environment = {"A": "1", "B": "2"}
    context = SimpleNamespace(environment=environment)
    session: Any = SimpleNamespace(sparkContext=context)
    copying = iter(context.environment.items())
    copied = [next(copying)]
    with own_workers(session):
        assert context.environment == {**environment, "WATERSMEET_OPERATOR": "1"}
        copied += copying  # a dictionary that has changed would end it
    assert dict(copied) == context.environment == {"A": "1", "B": "2"}
