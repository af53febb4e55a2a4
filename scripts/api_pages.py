"""Write pages for the Python API, made from its docstrings: ``python scripts/api_pages.py FOLDER``.

Open ``index.html`` there. The pages are whole: they load nothing from elsewhere.
"""

from __future__ import annotations

import argparse
import warnings
from importlib.metadata import version
from pathlib import Path

import pdoc
import pdoc.render

import watersmeet

#: What users import, and what they are given.
MODULES = (
    "watersmeet",
    "watersmeet.errors",
    "watersmeet.session.results",
    "watersmeet.runtime.query",
)


def write_pages(folder: Path) -> None:
    """Write the pages into a folder; what cannot be imported or shown is an error."""
    for name in watersmeet.__all__:  # resolved at first use, which is later than pdoc looks
        setattr(watersmeet, name, getattr(watersmeet, name))
    pdoc.render.configure(docformat="markdown", show_source=False, footer_text=f"Watersmeet {version('watersmeet')}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pdoc.pdoc(*MODULES, output_directory=folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write pages for the Python API.")
    parser.add_argument("folder", type=Path)
    write_pages(parser.parse_args().folder)
