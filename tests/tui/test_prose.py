"""Wrapping of text, English and Chinese."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.content import Content

from dttui.tui.widgets.prose import wrapped

ENGLISH = "⚠ Distributed training runs on several nodes at once; make sure that all of them can reach each other"
CHINESE = "⚠ 分布式训练将在多个节点上并行执行，请确保所有节点网络互通（例如 10.0.0.11）。"


def lines(text: str, width: int) -> list[str]:
    return [line.plain for line in wrapped(Content(text), width)]


@pytest.mark.parametrize("width", range(2, 60))
@pytest.mark.parametrize("text", [ENGLISH, CHINESE, "", "a\n\nb", "   indented " * 4, "x" * 100, "字" * 50])
def test_no_line_is_too_wide_and_nothing_is_lost(text: str, width: int) -> None:
    found = lines(text, width)
    assert all(cell_len(line) <= width for line in found)
    assert "".join(found).replace(" ", "") == text.replace("\n", "").replace(" ", "")


def test_english_breaks_between_words() -> None:
    assert lines(ENGLISH, 40) == [
        "⚠ Distributed training runs on several",
        "nodes at once; make sure that all of",
        "them can reach each other",
    ]


@pytest.mark.parametrize("word", ["放得下", "放不下", "可能放不下", "勉强放得下"])
@pytest.mark.parametrize("room", range(2, 11))
def test_a_chinese_verdict_stays_on_one_line_with_its_sign(word: str, room: int) -> None:
    found = lines(f"144–157 / 86 GB ✗\N{NO-BREAK SPACE}{word}", 16 + room)
    assert any(f"✗\N{NO-BREAK SPACE}{word}" in line for line in found)


def test_chinese_fills_its_lines_and_keeps_punctuation_in_place() -> None:
    assert lines(CHINESE, 34) == [
        "⚠ 分布式训练将在多个节点上并行执",
        "行，请确保所有节点网络互通（例如",
        "10.0.0.11）。",
    ]


@pytest.mark.parametrize("width", range(12, 60))
def test_no_line_begins_with_a_separating_dot(width: int) -> None:
    found = lines("this machine · 16 CPUs · Python 3.11.2 · 驱动 550 · torch 2.13.0", width)
    assert not any(line.startswith("·") for line in found)


def test_what_follows_a_label_stays_right_of_it() -> None:
    text = Content("nodes   3\n可用区  3 ⚠ 北京可用区A, 深圳可用区C\nno label, but a long line of words")
    assert [line.plain for line in wrapped(text, 24, hangs=True)] == [
        "nodes   3",
        "可用区  3 ⚠ 北京可用区A,",
        "        深圳可用区C",
        "no label, but a long",
        "line of words",
    ]


def test_line_breaks_of_the_text_stay_and_styles_too() -> None:
    text = Content.assemble("one two ", ("three four", "bold"), "\nfive")
    assert [line.plain for line in wrapped(text, 9)] == ["one two", "three", "four", "five"]
    assert [bool(line.spans) for line in wrapped(text, 9)] == [False, True, True, False]
