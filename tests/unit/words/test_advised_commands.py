"""Every command that dttui tells a person to run is one that its parsers take, in both languages."""

from __future__ import annotations

import argparse
import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import dtagent
import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po
from dtagent.cli import make_parser as agent_parser

from dttui.cli.arguments import make_parser
from dttui.frameworks import frameworks
from dttui.i18n import set_language
from tests.unit.words.test_catalogue import CATALOGUE, PACKAGE, translations

SOURCES = (PACKAGE, Path(dtagent.__file__).parent)
QUOTED = re.compile(r"`((?:dttui|dtagent)(?: [^`]*)?)`")
BARE = re.compile(r"\b((?:dttui|dtagent)(?: [a-z]+)?(?: [a-z]+)? --?[a-z][a-z-]*)")
"""Options beside the name of a program, outside of quotes too."""
PLACEHOLDER = re.compile(r"\{[^{}]*\}")
VALUES = {"{missing}": "1", "{rank}": "1", "{job}": "job-1", "{id}": "job-1"}


class _Refused(Exception):
    """What a parser says of a command."""


@pytest.fixture(autouse=True)
def refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_parser: argparse.ArgumentParser, message: str) -> None:
        raise _Refused(message)

    for parser in (argparse.ArgumentParser, type(make_parser())):
        monkeypatch.setattr(parser, "error", refuse)
    set_language("en")


def messages() -> Iterator[tuple[str, str]]:
    """Yield all texts of the catalogue and of the sources, each with where it is from."""
    catalogue: Catalog
    with CATALOGUE.open("rb") as file:
        catalogue = read_po(file)
    for message in catalogue:
        for text in (message.id, *translations(message)) if isinstance(message.id, str) else ():
            yield "the catalogue", text
        if not isinstance(message.id, str):
            yield from (("the catalogue", text) for text in (*message.id, *translations(message)))
    for root in SOURCES:
        for path in sorted(root.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [item.value if isinstance(item, ast.Constant) else "{value}" for item in node.values]
                    yield f"{path.name}:{node.lineno}", "".join(map(str, parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{path.name}:{node.lineno}", node.value


def commands() -> dict[str, str]:
    """Return every command, with where it was first found."""
    found: dict[str, str] = {}
    for place, text in messages():
        for command in (*QUOTED.findall(text), *BARE.findall(QUOTED.sub("", text))):
            found.setdefault(command.replace("\n", " "), place)
    return found


def why_refused(command: str) -> str:
    """Return what the parser says of a command; empty where it takes it, or only wants what is to be filled in."""
    filled = PLACEHOLDER.sub(lambda match: VALUES.get(match[0], "word"), command)
    program, *arguments = (word for word in shlex.split(filled) if word not in ("…", "..."))
    parser = make_parser() if program == "dttui" else agent_parser()
    try:
        known = parser.parse_args(arguments)
    except _Refused as refused:
        return "" if "required" in str(refused) or "expected" in str(refused) else str(refused)
    except SystemExit:  # --help and --version.
        return ""
    framework = getattr(known, "framework", None)
    return "" if framework in (None, "word", *(item.name for item in frameworks())) else f"no framework {framework}"


def test_every_command_that_a_text_names_is_taken_by_its_parser() -> None:
    found = commands()
    assert len(found) > 30
    refused = {command: (place, why) for command, place in found.items() if (why := why_refused(command))}
    assert refused == {}


@pytest.mark.parametrize(
    "command",
    ["dttui rewind job-1", "dttui ps --everything", "dttui agents redeploy a", "dtagent restart", "dttui stop --yes"],
)
def test_what_no_parser_takes_is_found(command: str) -> None:
    assert why_refused(command)
