"""The operator tree as a picture (SVG) for notebooks: rows flow from the sources on the left to the right.

The live page draws the same in the browser, where it changes; notebooks show outputs without running scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from watersmeet.html import escaped
from watersmeet.plan.operator_tree import TreeNode

#: Notes on a node, which stand below its name; the second is the node that takes its rows, if there is one.
Notes = Callable[[TreeNode, TreeNode | None], Sequence[str]]

_WIDTH, _HEIGHT, _ACROSS, _BETWEEN = 220, 60, 56, 14
_CHARACTERS = 27


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A subtree: its elements, the place of its root, and the y below its lowest box."""

    elements: tuple[str, ...]
    x: int
    y: int
    end: int


def tree_picture(root: TreeNode, notes: Notes) -> str:
    """Return an SVG element; each box has the node's name, its first note, and all of its notes as a title."""
    levels = _depth(root)
    drawn = _subtree(root, None, levels - 1, 1, notes)
    width, height = levels * (_WIDTH + _ACROSS) - _ACROSS + 2, drawn.end - _BETWEEN + 1
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="operator tree" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}">{"".join(drawn.elements)}</svg>'
    )


def _depth(node: TreeNode) -> int:
    return 1 + max(map(_depth, node.below), default=0)


def _subtree(node: TreeNode, above: TreeNode | None, level: int, top: int, notes: Notes) -> _Drawn:
    x, end = level * (_WIDTH + _ACROSS) + 1, top
    below: list[_Drawn] = []
    for each in node.below:
        below.append(_subtree(each, node, level - 1, end, notes))
        end = below[-1].end
    y = (below[0].y + below[-1].y) // 2 if below else top
    elements = [element for each in below for element in each.elements]
    elements += (_edge(each, x, y) for each in below)
    elements += _box(node, x, y, notes(node, above))
    return _Drawn(tuple(elements), x, y, max(end, y + _HEIGHT + _BETWEEN))


def _edge(below: _Drawn, x: int, y: int) -> str:
    begin, middle = below.x + _WIDTH, (below.x + _WIDTH + x) // 2
    high, low = below.y + _HEIGHT // 2, y + _HEIGHT // 2
    return f'<path d="M{begin} {high}C{middle} {high} {middle} {low} {x} {low}"/>'


def _box(node: TreeNode, x: int, y: int, notes: Sequence[str]) -> Iterator[str]:
    # An SVG within the SVG cuts off what is wider than the box, whatever the font.
    kind, corner = ("source", 16) if node.is_source else ("operator", 5)
    yield f'<svg class="{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}">'
    yield f"<title>{escaped(chr(10).join([node.text, *notes]))}</title>"
    yield f'<rect x="1" y="1" width="{_WIDTH - 2}" height="{_HEIGHT - 2}" rx="{corner}"/>'
    yield f'<text class="name" x="14" y="24">{escaped(_cut(node.text))}</text>'
    if notes:
        yield f'<text class="note" x="14" y="44">{escaped(_cut(notes[0]))}</text>'
    yield "</svg>"


def _cut(text: str) -> str:
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"
