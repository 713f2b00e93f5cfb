"""What a host writes never drives the terminal of whoever reads it."""

from __future__ import annotations

import time
import unicodedata

import pytest

from dttui.sanitize import clean


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("plain words", "plain words"),
        ("tab\tand\nnewline stay", "tab\tand\nnewline stay"),
        ("中文 ünï 🎉 stay", "中文 ünï 🎉 stay"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("a\x1b[2Jb\x1b[1;1Hc\x1b[?25l", "abc"),
        ("\x1b]52;c;ZXZpbA==\x07clipboard", "clipboard"),
        ("\x1b]0;title\x1b\\words", "words"),
        ("\x9d0;title\x9cwords", "words"),
        ("\x1bPdevice control\x1b\\words", "words"),
        ("\x1b(0charset", "charset"),
        ("\x1b7saved\x1b8", "saved"),
        ("bell\x07 back\x08space \x00nul \x7fdel", "bell backspace nul del"),
        ("50%\r100%", "50%100%"),
        ("user\u202egnp.exe", "usergnp.exe"),
        ("iso\u2066late\u2069d \u200fmark", "isolated mark"),
        ("zero\u200bwidth\u200d\u2060\ufeff", "zerowidth"),
        ("line\u2028separator\u2029s", "lineseparators"),
        ("tag\U000e0041s", "tags"),
        ("lone \udc80 surrogate", "lone \ufffd surrogate"),
        ("ends in escape \x1b", "ends in escape "),
        ("ends in csi \x1b[", "ends in csi "),
    ],
)
def test_what_is_dangerous_goes_and_what_is_text_stays(dirty: str, expected: str) -> None:
    assert clean(dirty) == expected


def test_an_unterminated_string_sequence_does_not_swallow_later_lines() -> None:
    assert clean("\x1b]0;never ends\nline two\nline three\x07") == "0;never ends\nline two\nline three"


def test_nothing_that_is_left_is_a_control_character_whatever_one_feeds_it() -> None:
    every = "".join(map(chr, range(0x3000))) + "\x1b" + "".join(map(chr, range(0xE0000, 0xE0080)))
    for text in (every, every[::-1], "\x1b".join(every), "\x1b[".join(every[:400])):
        left = clean(text)
        bad = [c for c in left if unicodedata.category(c) in {"Cc", "Cs"} and c not in "\t\n"]
        bad += [c for c in left if unicodedata.bidirectional(c) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI"}]
        assert bad == []
        assert clean(left) == left


@pytest.mark.parametrize("hostile", ["\x1b]", "\x9d", "\x1b[", "\x1b[0;", "\x1bP\x1b", "\x1b "])
def test_a_megabyte_of_broken_sequences_costs_no_more_than_a_moment(hostile: str) -> None:
    text = hostile * (1_000_000 // len(hostile))
    started = time.perf_counter()
    clean(text)
    assert time.perf_counter() - started < 5
