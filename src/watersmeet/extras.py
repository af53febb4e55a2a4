"""Packages that only some installations have."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from watersmeet.errors import ConfigError


def require_extra(extra: str, what: str, modules: Sequence[str]) -> None:
    """Raise ``ConfigError``, which says what to install, if one of the modules is missing."""
    missing = [module for module in modules if not _is_there(module)]
    if missing:
        raise ConfigError(
            f"{what} needs packages that are not installed: {', '.join(missing)}",
            hint=f"pip install '.[{extra}]' in a clone of Watersmeet",
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that holds it
        return False
