"""The rows that two versions of a query have taken over the same offsets, and the results that they have made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from watersmeet.engine.specs import OperatorSpec
from watersmeet.state.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows by input (the alias of its stream), and results of the last operator; each before and after."""

    rows: Mapping[str, tuple[int, int]]
    results: tuple[int, int]

    @property
    def rows_differ(self) -> bool:
        """Whether the versions have taken different numbers of rows of an input that both have."""
        return any(before != after for before, after in self.rows.values())

    def lines(self) -> Iterator[str]:
        """For people."""
        for alias, (before, after) in self.rows.items():
            yield f"rows of {alias}: {before:,} by the old version, {after:,} by the new one"
        yield f"results: {self.results[0]:,} by the old version, {self.results[1]:,} by the new one"


def counted(
    old: Sequence[OperatorSpec],
    old_state: Mapping[str, Mapping[int, Manifest]],
    new: Sequence[OperatorSpec],
    new_state: Mapping[str, Mapping[int, Manifest]],
) -> Counts:
    """Compare what manifests count."""
    sums = [_sums(state) for state in (old_state, new_state)]
    before, after = (_of_inputs(specs, found) for specs, found in zip((old, new), sums, strict=True))
    results = [found[f"{specs[-1].name}.results"] for specs, found in zip((old, new), sums, strict=True)]
    return Counts(
        {alias: (before[alias], after[alias]) for alias in before if alias in after}, (results[0], results[1])
    )


def _sums(state: Mapping[str, Mapping[int, Manifest]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for buckets in state.values():
        for manifest in buckets.values():
            found.update(manifest.counters)
    return found


def _of_inputs(specs: Sequence[OperatorSpec], sums: Counter[str]) -> dict[str, int]:
    return {
        input.source: sums[f"{spec.name}.in.{input.source}"]
        for spec in specs
        for input in spec.inputs
        if input.source is not None
    }
