"""What the benchmarks' command lines share."""

from __future__ import annotations

import argparse

from benchmarks.workloads import WORKLOADS, Workload


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def workload_name(text: str) -> str:
    """A name of a workload."""
    if text not in WORKLOADS:
        raise argparse.ArgumentTypeError(f"there is no workload {text}; there are {', '.join(WORKLOADS)}")
    return text


def workload_of(arguments: argparse.ArgumentParser, name: str, rows: int | None) -> Workload:
    """A workload, with other than its own number of rows a side if that is given; too few end the program."""
    try:
        return WORKLOADS[name] if rows is None else WORKLOADS[name].of_rows(rows)
    except ValueError as error:
        arguments.error(str(error))


def setting(text: str) -> str:
    """A setting of Spark and its value; without a value Spark's default holds."""
    if text.find("=") < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not SETTING=VALUE")
    return text
