"""Compiles the message catalogues (.po to .mo) whenever the package is built or installed editable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogueHook(BuildHookInterface[Any]):
    """Writes each .mo beside its .po; .mo files are never committed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile all catalogues under dttui/locale."""
        from babel.messages.mofile import write_mo
        from babel.messages.pofile import read_po

        for source in Path(self.root, "dttui", "locale").glob("*/LC_MESSAGES/*.po"):
            with source.open("rb") as stream:
                catalogue = read_po(stream)
            with source.with_suffix(".mo").open("wb") as stream:
                write_mo(stream, catalogue)
