"""Options of WITH and SETTINGS, checked against a pydantic model, with one clear sentence for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from watersmeet.errors import ConfigError, did_you_mean

Model = TypeVar("Model", bound=BaseModel)


def parse_options(
    model: type[Model],
    what: str,
    options: Mapping[str, object],
    *,
    nested: Mapping[str, tuple[str, ...]] | None = None,
) -> Model:
    """The options as ``model``; names that begin with one of the ``nested`` prefixes go into that field's dictionary.

    Raises ``ConfigError`` naming the first option that is missing, unknown or wrong, and what is allowed.
    """
    nested = nested or {}
    given: dict[str, object] = {name: {} for name in nested}
    for name, value in options.items():
        for target, prefixes in nested.items():
            if name.startswith(prefixes):
                given[target][name] = value  # type: ignore[index]
                break
        else:
            if name not in model.model_fields or name in nested:
                known = [field for field in model.model_fields if field not in nested]
                raise ConfigError(f"{what} has no option {name!r}", hint=did_you_mean(name, known), option=name)
            given[name] = value
    try:
        return model(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "missing":
            raise ConfigError(f"{what} needs the option {name}", option=name) from None
        raise ConfigError(f"{what}: option {name} = {first['input']!r}: {first['msg'].lower()}", option=name) from None
