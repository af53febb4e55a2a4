"""The picture of an operator tree: all nodes are in it, none covers another, and names cannot break it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from tests.monitoring.statuses import CHAIN, plan_of
from watersmeet.plan.operator_tree import TreeNode, operator_tree
from watersmeet.plan.tree_picture import tree_picture

SVG = "{http://www.w3.org/2000/svg}"


def boxes(picture: str) -> dict[str, tuple[int, int, int, int]]:
    """Where each box is, by the name that it shows: left, top, right, bottom."""
    found = {}
    for box in ET.fromstring(picture).iter(f"{SVG}svg"):
        name = box.find(f"{SVG}text[@class='name']")
        if name is not None:
            x, y, width, height = (int(box.attrib[each]) for each in ("x", "y", "width", "height"))
            found[name.text or ""] = (x, y, x + width, y + height)
    return found


def leaf(name: str) -> TreeNode:
    return TreeNode(name, name, is_source=True)


def test_rows_flow_to_the_right_and_no_box_covers_another() -> None:
    picture = tree_picture(operator_tree(plan_of(CHAIN)), lambda *_: [])
    found = boxes(picture)
    assert set(found) == {"o", "p", "s", "join_1", "join_2"}
    assert found["o"][2] < found["join_1"][0]
    assert found["join_1"][2] < found["join_2"][0]
    root = ET.fromstring(picture)
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    for name, (left, top, right, bottom) in found.items():
        assert left >= 0
        assert right <= width
        assert top >= 0
        assert bottom <= height
        for other, box in found.items():
            assert name == other or right <= box[0] or box[2] <= left or bottom <= box[1] or box[3] <= top
    assert len(root.findall(f"{SVG}path")) == 4


def test_every_edge_joins_its_two_boxes() -> None:
    tree = TreeNode("j", "j", is_source=False, below=(leaf("a"), leaf("b"), leaf("c")))
    picture = tree_picture(tree, lambda *_: [])
    found = boxes(picture)
    left, top, _, bottom = found["j"]
    starts = []
    for path in ET.fromstring(picture).findall(f"{SVG}path"):
        begin, end = path.attrib["d"].removeprefix("M").split("C")[0], path.attrib["d"].split(" ", 1)[1]
        starts.append(tuple(map(int, begin.split())))
        assert end.endswith(f" {left} {(top + bottom) // 2}")
    assert starts == [(box[2], (box[1] + box[3]) // 2) for box in (found["a"], found["b"], found["c"])]


def test_names_are_escaped_and_cut_and_whole_in_the_title() -> None:
    name = "<script>alert('&')</script>" * 3
    picture = tree_picture(leaf(name), lambda *_: ["first <b>", "second"])
    assert "<script" not in picture
    assert "<b>" not in picture
    (title,) = ET.fromstring(picture).iter(f"{SVG}title")
    assert title.text == f"{name}\nfirst <b>\nsecond"
    assert list(boxes(picture)) == [f"{name[:26]}…"]
    assert "second" not in "".join(each.text or "" for each in ET.fromstring(picture).iter(f"{SVG}text"))


def test_notes_know_which_operator_takes_the_rows() -> None:
    seen = set()

    def notes(node: TreeNode, above: TreeNode | None) -> list[str]:
        seen.add((node.name, above and above.name))
        return []

    tree_picture(operator_tree(plan_of(CHAIN)), notes)
    assert seen == {("join_2", None), ("join_1", "join_2"), ("s", "join_2"), ("o", "join_1"), ("p", "join_1")}
