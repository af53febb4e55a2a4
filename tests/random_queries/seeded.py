"""Random examples of one seed: every run draws the same, and nothing is kept between runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

Example = TypeVar("Example")


def try_examples(examples: SearchStrategy[Example], check: Callable[[Example], None], *, seed: int, most: int) -> None:
    """Check at most ``most`` examples; the first that fails is made small."""

    @hypothesis.seed(seed)
    @settings(
        max_examples=most,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(examples)
    def run(example: Example) -> None:
        check(example)

    run()
