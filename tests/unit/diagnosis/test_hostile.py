"""No text, however long or made for it, keeps a recogniser of causes busy."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator

import pytest

from dttui.diagnosis.causes import any_is_consequence
from dttui.diagnosis.recogniser import Recogniser
from dttui.diagnosis.table import RECOGNISERS


def hostile_texts(row: Recogniser) -> Iterator[str]:
    """Yield texts that begin to match again and again, and never do: the words of a pattern, repeated."""
    for pattern in (row.raised, row.printed):
        words = [re.sub(r"\\(.)", r"\1", word) for word in _WORDS.findall(pattern or "")]
        pairs = [first + second for first, second in itertools.pairwise(words)]
        for word in {*words, *pairs, "".join(words), "[a, ", "1 "}:
            if word:
                yield word * (HOSTILE_CHARACTERS // len(word))


_WORDS = re.compile(r"(?:[A-Za-z0-9 ':<,=#/-]|\\[.()\[\]]){3,}")
HOSTILE_CHARACTERS = 64 * 1024


@pytest.mark.parametrize("row", RECOGNISERS, ids=lambda row: row.code)
def test_no_text_keeps_a_recogniser_busy(row: Recogniser) -> None:
    for text in hostile_texts(row):
        began = time.process_time()
        row.in_exception(f"RuntimeError: {text}")
        row.in_line(text, next(iter(row.exit_codes), 1))
        assert time.process_time() - began < 2.0, text[:80]


def test_a_failure_of_endless_words_keeps_nobody_busy() -> None:
    text = "RuntimeError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=A loss gloo\n"
    began = time.process_time()
    any_is_consequence(text * 40_000, None, ())
    any_is_consequence(None, f"Traceback (most recent call last):\n{text}" * 30_000, ())
    any_is_consequence(None, None, [f"Traceback (most recent call last):\n{text}"[:60] + text * 600] * 30)
    assert time.process_time() - began < 2.0
