"""Figures of a program that runs for long, sampled again and again: what they are, and whether they grow."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.figures import slope

#: A figure is constant if it changes by less than this share of its mean in an hour.
_CONSTANT = 0.05
_HOUR = 3_600.0


@dataclass(slots=True)
class Series:
    """Named figures by time, in seconds since the run began.  A sample need not have all of them."""

    times: list[float] = field(default_factory=list)
    samples: list[Mapping[str, float]] = field(default_factory=list)

    def add(self, seconds: float, sample: Mapping[str, float]) -> None:
        """Add a sample, later than all before."""
        self.times.append(seconds)
        self.samples.append(sample)

    @property
    def names(self) -> list[str]:
        """The names of all figures, in the order of their first samples."""
        return list(dict.fromkeys(name for sample in self.samples for name in sample))

    def rows(self, names: Sequence[str], seconds: float) -> Iterator[list[float]]:
        """Yield the medians of some figures for each span of so many seconds; NaN where there is no sample."""
        spans = [int(at // seconds) for at in self.times]
        for span in sorted(set(spans)):
            taken = [sample for each, sample in zip(spans, self.samples, strict=True) if each == span]
            values = [[sample[name] for sample in taken if name in sample] for name in names]
            yield [statistics.median(each) if each else float("nan") for each in values]

    def trend(self, name: str, since: float) -> Trend | None:
        """Return how a figure changes from a time on; None if it is not there in each sample from then on."""
        found = [(at, sample.get(name)) for at, sample in zip(self.times, self.samples, strict=True) if at >= since]
        values = [value for _, value in found if value is not None]
        if len(values) < len(found) or len(found) < 2:
            return None
        return Trend(statistics.fmean(values), slope([at for at, _ in found], values) * _HOUR)


@dataclass(frozen=True, slots=True)
class Trend:
    """The mean of a figure, and by how much it grows in an hour, by least squares."""

    mean: float
    per_hour: float

    @property
    def verdict(self) -> str:
        """Say whether it is constant, grows or falls."""
        if abs(self.per_hour) <= _CONSTANT * abs(self.mean):
            return "constant"
        return "grows" if self.per_hour > 0 else "falls"
