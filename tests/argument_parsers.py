"""What parsers of arguments take: argparse tells it nowhere but in its help."""

from __future__ import annotations

import argparse
from collections.abc import Mapping


def verbs_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return its commands by their names."""
    kind = argparse._SubParsersAction  # noqa: SLF001
    (verbs,) = (action for action in parser._actions if isinstance(action, kind))  # noqa: SLF001
    return dict(verbs.choices)


def options_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.Action]:
    """Return its options by how they are written, but for help."""
    options = {text: action for action in parser._actions for text in action.option_strings}  # noqa: SLF001
    return {text: action for text, action in options.items() if text not in ("-h", "--help")}


def arguments_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of its arguments that are no options, in order."""
    return [action.dest for action in parser._actions if not action.option_strings]  # noqa: SLF001
