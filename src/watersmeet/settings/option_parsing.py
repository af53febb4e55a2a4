"""Check options of WITH and SETTINGS against a pydantic model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from watersmeet.errors import ConfigError, did_you_mean
from watersmeet.settings.secrets import masked_value

Model = TypeVar("Model", bound=BaseModel)


def parse_options(
    model: type[Model],
    what: str,
    options: Mapping[str, object],
    *,
    nested: Mapping[str, tuple[str, ...]] | None = None,
) -> Model:
    """Return the options as a ``model``; ``what`` names in messages who takes them.

    An option whose name begins with one of the ``nested`` prefixes goes into that field's dictionary. Raises
    ``ConfigError`` for the first option that is missing, unknown or wrong, with what is allowed.
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
                problem = f"{what} has no option {name!r}" + ("" if known else ": it takes none")
                raise ConfigError(problem, hint=did_you_mean(name, known), option=name)
            given[name] = value
    try:
        return model(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "missing":
            raise ConfigError(f"{what} needs the option {name}", option=name) from None
        value = options.get(name, first["input"])  # as written
        shown = masked_value(name, value) if isinstance(value, str) else value
        # a check of our own says it in its own words
        own = first.get("ctx", {}).get("error")
        problem = first["msg"].lower() if own is None else str(own)
        raise ConfigError(f"{what}: option {name} = {shown!r}: {problem}", option=name) from None
