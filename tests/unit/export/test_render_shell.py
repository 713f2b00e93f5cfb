"""What a rendered script says, bash reads back exactly, but for the variables that holes become."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dttui.export.shell import IPV6_MARK, Shell, default_text, lines_of

VALUES = {"PORT": "29500", "WHERE": "/a b/$x"}
SHELL = Shell(VALUES)
NASTY = [
    "${PORT}",
    "${WHERE}",
    "${HOME}",
    "$(id)",
    "`id`",
    "\\",
    '"',
    "'",
    "!",
    "EOF",
    "\n",
    "\\\n",
    "~",
    "*",
    "}",
    "\t",
]
TEXTS = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    st.lists(st.sampled_from(NASTY), max_size=8).map("".join),
)


def meant(text: str) -> str:
    """What a text becomes at the start of a job."""
    parts = text.split("${")
    whole = parts[0]
    for part in parts[1:]:
        name, brace, rest = part.partition("}")
        whole += VALUES[name] + rest if brace and name in VALUES else "${" + part
    return whole


def run(script: str, cwd: Path | None = None) -> bytes:
    head = "set -euo pipefail\nPORT=29500\nWHERE='/a b/$x'\n"
    done = subprocess.run(["bash"], input=(head + script).encode(), capture_output=True, cwd=cwd, check=False)
    assert done.stderr == b"", done.stderr.decode()
    assert done.returncode == 0
    return done.stdout


@settings(max_examples=60)
@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_any_words_come_back_as_they_were(texts: list[str]) -> None:
    words = [*map(SHELL.word, texts), *(SHELL.word(f"--option={text}") for text in texts)]
    told = run("printf '%s\\0' " + lines_of(words) + "\n").split(b"\0")[:-1]
    assert told == [*(meant(text).encode() for text in texts), *(meant(f"--option={text}").encode() for text in texts)]


@settings(max_examples=60)
@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_any_variables_come_back_as_they_were(texts: list[str]) -> None:
    items = [SHELL.assignment(f"V{index}", text) for index, text in enumerate(texts)]
    items += [SHELL.assignment(f"W{index}", text, unless_empty="PORT") for index, text in enumerate(texts)]
    script = "environment=(\n" + "\n".join(items) + '\n)\nexec env -i "${environment[@]}" /usr/bin/env -0\n'
    wanted = [f"V{index}={meant(text)}" for index, text in enumerate(texts)]
    wanted += [f"W{index}={meant(text)}" for index, text in enumerate(texts)]
    assert sorted(run(script).split(b"\0")[:-1]) == sorted(item.encode() for item in wanted)


@settings(max_examples=60)
@given(TEXTS, st.booleans())
def test_any_file_comes_back_as_it_was(tmp_path: Path, text: str, ends: bool) -> None:
    whole = text + "\n" if ends else text
    run(SHELL.file("out", whole) + "\n", tmp_path)
    assert (tmp_path / "out").read_bytes() == meant(whole).encode()


@settings(max_examples=40)
@given(TEXTS.filter(bool))
def test_any_default_comes_back_as_it_was_and_a_value_from_outside_wins(text: str) -> None:
    script = "X='from outside'\n" + default_text("X", "inside") + "\n" + default_text("Y", text, "${PORT}")
    assert run(script + '\nprintf \'%s\\0%s\' "$X" "$Y"\n') == b"from outside\x0029500" + text.encode()


def test_a_variable_of_one_that_is_empty_is_not_there() -> None:
    item = SHELL.assignment("NAME", "=${PORT}", unless_empty="PORT")
    assert run(f"PORT=\nwords=({item} x)\necho ${{#words[@]}}\n") == b"1\n"


def test_the_hole_of_an_ipv6_address_is_that_of_any_address() -> None:
    shell = Shell(["NODE0_ADDRESS"])
    assert shell.word(f"[${{NODE0_ADDRESS{IPV6_MARK}}}]:1") == '"[${NODE0_ADDRESS}]:1"'
    assert shell.word("${NODE1_ADDRESS}") == "'${NODE1_ADDRESS}'"


@pytest.mark.parametrize("text", ["EOF\n", "a\nEOF\nEOF_\n", "EOF\n${PORT}\n"])
def test_a_line_that_would_end_a_here_document_does_not(tmp_path: Path, text: str) -> None:
    run(SHELL.file("out", text) + "\n", tmp_path)
    assert (tmp_path / "out").read_text() == meant(text)


def test_options_stand_on_lines_of_their_own() -> None:
    words = ["env", '"${environment[@]}"', "python", "-m", "x", "--a=1", "train.py", "--steps", "3"]
    assert lines_of(words) == 'env "${environment[@]}" \\\n  python -m x \\\n  --a=1 \\\n  train.py \\\n  --steps 3'
