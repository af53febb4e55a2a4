"""Arguments that the benchmarks' command lines share."""

from __future__ import annotations

import argparse

from benchmarks.workloads import WORKLOADS, Workload


def count(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def workload_name(text: str) -> str:
    """Parse the name of a workload over files."""
    names = [name for name, workload in WORKLOADS.items() if not workload.records]
    if text not in WORKLOADS:
        raise argparse.ArgumentTypeError(f"there is no workload {text}; there are {', '.join(names)}")
    if text not in names:
        raise argparse.ArgumentTypeError(f"{text} reads Kafka topics: run it with watersmeet bench")
    return text


def workload_of(arguments: argparse.ArgumentParser, name: str, rows: int | None) -> Workload:
    """Return a workload, with ``rows`` rows per side if given; end the program if that is too few."""
    try:
        return WORKLOADS[name] if rows is None else WORKLOADS[name].of_rows(rows)
    except ValueError as error:
        arguments.error(str(error))


def setting(text: str) -> str:
    """Parse a setting of Spark and its value; without a value it means Spark's default."""
    if text.find("=") < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not SETTING=VALUE")
    return text
