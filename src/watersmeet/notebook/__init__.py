"""Watersmeet in notebooks: ``%load_ext watersmeet.notebook`` adds the cell magic ``%%watersmeet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the cell magic; IPython calls this for ``%load_ext``."""
    from watersmeet.notebook.magic import magic_of

    shell.register_magic_function(magic_of(shell), magic_kind="cell", magic_name="watersmeet")
