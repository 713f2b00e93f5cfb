"""Short ways to translate documents and command lines of others, and to look at what became of them."""

from __future__ import annotations

import shlex
from typing import Any

from dttui.spec.dialects.script import translate_words
from dttui.spec.dialects.translation import Translated
from dttui.spec.importing import Imported, translate_file


def command(line: str) -> Translated:
    return translate_words(shlex.split(line), "command line")


def file(text: str, name: str = "f") -> Translated:
    return translate_file(text, name)


def data(imported: Imported) -> dict[str, Any]:
    """Return what a job says, but for that it needs no dataset of the catalogue, as every command has it."""
    said = imported.job.model_dump(mode="json", exclude_unset=True)
    return {key: value for key, value in said.items() if (key, value) != ("dataset", "none")}


def keys(imported: Imported) -> dict[str, int]:
    return {note.place.path: note.place.line for note in imported.notes if note.place is not None}
