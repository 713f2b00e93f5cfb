"""Every cause is known by what the libraries really print, and by nothing that only looks like it."""

from __future__ import annotations

import pytest

from dttui.diagnosis.causes import recognise, tell
from dttui.diagnosis.exceptions import chain
from dttui.diagnosis.table import RECOGNISERS
from tests.unit.diagnosis.cause_texts import RAISED
from tests.unit.diagnosis.printed_texts import PRINTED

FIELDS = {"host": "gpu2", "rank": "3", "python": "/opt/conda/bin/python"}


def found(text: str) -> tuple[str | None, str]:
    spoken, _said = recognise([item.text for item in chain(text, None, ())], (), 1)
    return (None, "") if spoken is None else (spoken.row.code, tell(spoken.row.words, {**FIELDS, **spoken.fields}))


@pytest.mark.parametrize(("text", "code", "words"), RAISED)
def test_an_exception_tells_its_cause_in_plain_words(text: str, code: str, words: str) -> None:
    assert found(text)[0] == code
    assert words in found(text)[1]


@pytest.mark.parametrize(("line", "exit_code", "code", "words"), PRINTED)
def test_a_last_line_tells_its_cause_in_plain_words(line: str, exit_code: int | None, code: str, words: str) -> None:
    _spoken, said = recognise([], ["step 12", line], exit_code)
    assert said is not None
    assert (said.row.code, said.index) == (code, 1)
    assert words in tell(said.row.words, {**FIELDS, **said.fields})


def test_every_row_of_the_table_is_shown_by_a_text() -> None:
    shown = {code for _text, code, _words in RAISED} | {code for _line, _exit, code, _words in PRINTED}
    rare = {"fabric-manager", "gpu-lost", "not-authorised"}
    assert {row.code for row in RECOGNISERS} - shown == rare


def test_every_sentence_of_the_table_can_be_told() -> None:
    known = {**FIELDS, "milliseconds": "1500", "missing": "1", "job": "job-1", "arguments": "run.args"}
    for row in RECOGNISERS:
        groups = "".join((row.raised or "", row.printed or ""))
        fields = known | {name: "x" for name in ("path", "what", "program", "library", "module", "model", "last")}
        fields |= {
            name: "1" for name in ("gpu", "asked", "free", "total", "port", "address", "joined", "size", "waited")
        }
        fields |= {name: "1" for name in ("rank_a", "rank_b", "version_a", "version_b", "ranks", "operation")}
        fields |= {name: "1" for name in ("call_a", "call_b", "got", "wanted", "count_a", "count_b", "index", "shape")}
        fields |= {"count": "1", "names": "b.bias"}
        assert groups
        for text in (row.words, *row.advice):
            assert "{" not in tell(text, fields)


def test_words_at_either_end_of_a_long_message_are_found() -> None:
    filler = "x" * 10_000
    assert found(f"RuntimeError: NCCL error in: a.cpp:1, unhandled\n{filler}")[0] == "nccl-error"
    assert found(f"OSError: {filler} [Errno 28] No space left on device: '/data/x'")[0] == "disk-full"
