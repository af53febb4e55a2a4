"""What plan.json tells of an operator, in texts (``plan_file.describe``): its kernel, inputs, buckets and keys."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from watersmeet.errors import CheckpointError
from watersmeet.expressions.event_time import TimeUnit

_INPUT = re.compile(r"input (\d+)")
_TEXT = r"(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")"
_MADE_OF = re.compile(rf"\({_TEXT}, {_TEXT}, '(\w+)'")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_NAMES = r"\(((?:'(?:[^'\\]|\\.)*',? ?)*)\)"
#: The parts of a kernel that say what its keys are, and where in the part's text (None: everywhere).
_KEYS = (
    (re.compile(r"(?:query \d+ )?keys"), None),
    (re.compile(r"(?:query \d+ )?inputs"), re.compile(rf"keys={_NAMES}")),
    (re.compile(r"match"), re.compile(r"Key\((left='(?:[^'\\]|\\.)*', right='(?:[^'\\]|\\.)*')")),
    (re.compile(r"newest"), re.compile(rf"\bby={_NAMES}")),
)
_COMPUTED_KEY = re.compile(r"\('((?:[^'\\]|\\.)*)', '\"((?:[^'\\]|\\.)*)\"', ")
_SIDES = ("left", "right")
#: Of a part that says nothing of keys.
_NOTHING = re.compile(r"(?!)")
_NUMBERED = re.compile(r"input_(\d+)")


@dataclass(frozen=True, slots=True)
class OperatorText:
    """An operator as plan.json describes it.

    ``inputs`` are the aliases of its inputs, ``counts_rows`` says that its event times are plain numbers.  ``labels``
    are the columns that stored keys were, where these have names of their own.
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    buckets: tuple[int, ...]
    fingerprint: str
    counts_rows: bool
    keys: tuple[str, ...]
    labels: Mapping[str, str]

    def input_of(self, relation: str) -> str | None:
        """The alias of the input whose rows a relation holds; None if it holds notes, or rows of several."""
        if relation in _SIDES and len(self.inputs) == len(_SIDES):
            return self.inputs[_SIDES.index(relation)]
        if (found := _NUMBERED.fullmatch(relation)) is not None and int(found[1]) < len(self.inputs):
            return self.inputs[int(found[1])]
        return self.inputs[0] if len(self.inputs) == 1 else None

    def key_columns(self, stored: Sequence[str]) -> list[str]:
        """The columns that hold a row's key, of those that are stored."""
        return [name for name in self.keys if name in stored]

    def label(self, column: str) -> str:
        """A stored column's name as people know it: ``alias.column``."""
        return self.labels.get(column, column).replace(":", ".")


def operators_of(described: Mapping[str, Mapping[str, str]], path: str) -> list[OperatorText]:
    """The operators that a plan file describes; ``CheckpointError`` if it does so in another way."""
    try:
        return [_operator(name, texts) for name, texts in described.items()]
    except (KeyError, ValueError, SyntaxError, TypeError, IndexError):
        raise CheckpointError(
            f"{path} does not describe its operators as this version of Watersmeet does",
            hint="use the version that wrote it",
        ) from None


def _operator(name: str, texts: Mapping[str, str]) -> OperatorText:
    inputs = tuple(text.partition(": ")[0] for key, text in texts.items() if _INPUT.fullmatch(key))
    made = [_MADE_OF.match(text) for key, text in texts.items() if key.endswith(" is made of")]
    kind = next((key.split(" ")[0] for key in texts if key[:1].isupper()), "Forward")
    keys: dict[str, None] = {}
    labels: dict[str, str] = {}
    for key, text in texts.items():
        within = next((within for part, within in _KEYS if part.fullmatch(key.partition(" ")[2])), _NOTHING)
        if key[:1].isupper() and within is not _NOTHING:
            texts_of_keys = [text] if within is None else within.findall(text)
            keys.update(dict.fromkeys(_unescaped(each) for part in texts_of_keys for each in _QUOTED.findall(part)))
            labels.update({_unescaped(name): _unescaped(column) for name, column in _COMPUTED_KEY.findall(text)})
    buckets = ast.literal_eval(texts["buckets"])
    return OperatorText(
        name=name,
        kind=kind,
        inputs=inputs,
        buckets=tuple(int(bucket) for bucket in buckets),
        fingerprint=texts["fingerprint"],
        counts_rows=any(each is not None and each[5] == TimeUnit.ROWS.value for each in made),
        keys=tuple(keys),
        labels=labels,
    )


def _unescaped(text: str) -> str:
    return str(ast.literal_eval(f"'{text}'"))
