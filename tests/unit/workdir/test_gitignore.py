"""Patterns of .gitignore, read without git: what git itself says of them is the measure."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from dttui.workdir.beneath import Root
from dttui.workdir.gitignore import IgnoreRules

NAMES = [chr(code) for code in range(0x20, 0x7F) if chr(code) not in "/.:"]  # To git, `:` alone is no name.
NAMES += ["ab", "a]", "[a", "x1", "X-", "a.log", "\t"]
CLASSES = [
    "alpha",
    "digit",
    "upper",
    "lower",
    "alnum",
    "punct",
    "space",
    "blank",
    "xdigit",
    "cntrl",
    "graph",
    "print",
    "word",
]
PARTS = [f"[:{name}:]" for name in CLASSES]
PARTS += ["[:", ":]", "[::]", "[", "]", "-", "a-f", "z-a", "9-0", "^", "!", "\\]", "\\-", "\\\\", "\\[", "+-\\-"]
PARTS += ["[:digit:]-z", "&&", "~", "||", "#", "{", "x", "1"]


def ignored_by_git(directory: Path, pattern: str) -> set[str]:
    """Return the names that git leaves out; whether they are there does not matter to it."""
    (directory / ".gitignore").write_text(f"{pattern}\n")
    told = subprocess.run(
        ["git", "-C", str(directory), "check-ignore", "-z", "--stdin", "--no-index"],
        input="\0".join(NAMES), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return set(filter(None, told.stdout.split("\0")))


def ignored_by_us(directory: Path, pattern: str) -> set[str]:
    (directory / ".gitignore").write_text(f"{pattern}\n")
    rules = IgnoreRules()
    rules.enter(Root(directory), "", "")
    return {name for name in NAMES if rules.ignores(name, is_directory=False)}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    [
        "[[:alpha:]]",
        "[![:alpha:]]",
        "x[[:digit:]]",
        "[[:upper:]]-",
        "[[:punct:][:space:]]",
        "[[:word:]]",
        "[\\]]",
        "[a",
        "a\\",
    ],
)
def test_a_class_of_characters_is_what_git_takes_it_for(checkout: Path, pattern: str) -> None:
    assert ignored_by_us(checkout, pattern) == ignored_by_git(checkout, pattern)


def test_any_bracket_fits_what_git_says_it_fits(checkout: Path) -> None:
    choose = random.Random(13)
    patterns = {
        choose.choice(["", "", "*", "x"])
        + "["
        + "".join(choose.choice(PARTS) for _part in range(choose.randint(0, 4)))
        + choose.choice(["]", "]", "]", "", "]*"])
        for _each in range(300)
    }
    wrong = {
        pattern: ignored_by_us(checkout, pattern) ^ ignored_by_git(checkout, pattern) for pattern in sorted(patterns)
    }
    assert {pattern: names for pattern, names in wrong.items() if names} == {}
