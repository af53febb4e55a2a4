"""What notebooks show of values: escaped, bounded, and nothing else."""

from __future__ import annotations

from watersmeet.html import MOST_ROWS, error_part, page_part, plain, table

EVIL = "<img src=x onerror=\"alert('&')\">"


def test_values_and_names_are_escaped() -> None:
    for html in (table([EVIL], [[EVIL]]), plain(EVIL), error_part(ValueError(EVIL))):
        assert "<img" not in html
        assert "&lt;img src=x onerror=&quot;alert(&#x27;&amp;&#x27;)&quot;&gt;" in html
    assert table([EVIL], [[EVIL]]).count("&lt;img") == 2


def test_a_table_has_a_row_for_each_row_and_marks_null_and_numbers() -> None:
    html = table(["a", "b"], [[None, "NULL"], [1, True]])
    assert '<tr><td class="null">NULL</td><td>NULL</td></tr>' in html
    assert '<tr><td class="number">1</td><td>True</td></tr>' in html
    assert "rows" not in html


def test_an_empty_table_says_so() -> None:
    assert "(no rows)" in table(["a"], [])


def test_a_long_table_is_cut_and_says_so() -> None:
    whole, longer = (table(["a"], [[f"v{n}"] for n in range(MOST_ROWS + more)]) for more in (0, 1))
    assert f"<td>v{MOST_ROWS - 1}</td>" in whole
    assert "more" not in whole
    assert f"<td>v{MOST_ROWS}</td>" not in longer
    assert f"the first {MOST_ROWS} rows; there are more" in longer


def test_a_long_value_is_cut_and_says_how_long_it_is() -> None:
    assert f"<td>{'x' * 500}… (501 characters)</td>" in table(["a"], [["x" * 501]])
    assert f"<td>{'x' * 500}</td>" in table(["a"], [["x" * 500]])


def test_characters_that_no_page_can_hold_are_replaced() -> None:
    assert "<td>a\N{REPLACEMENT CHARACTER}b\tc\n</td>" in table(["a"], [["a\0b\tc\n"]])
    assert plain("a\udce9b\uffff").encode() == "<pre>a\ufffdb\ufffd</pre>".encode()


def test_all_colours_beside_those_of_the_page_bring_their_background() -> None:
    for rule in page_part().split("}"):
        if "svg" not in rule and " color:" in rule:
            assert "background:" in rule, rule
