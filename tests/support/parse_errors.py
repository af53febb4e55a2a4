"""What users see of SQL that cannot be parsed."""

from __future__ import annotations

import pytest

from watersmeet.errors import WatersmeetError
from watersmeet.sql.parse import parse


def check_error(sql: str, text: str, kind: type[WatersmeetError]) -> None:
    """Parse SQL, which must raise an error of this kind, with this text and with a position."""
    with pytest.raises(WatersmeetError) as caught:
        parse(sql)
    assert str(caught.value) == text
    assert type(caught.value) is kind
    assert caught.value.position is not None
