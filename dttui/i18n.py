"""Messages in the language of the person: English is the source, catalogues are gettext's, under dttui/locale."""

from __future__ import annotations

import gettext
import os
from pathlib import Path

LANGUAGES = ("en", "zh")

_catalogue: gettext.NullTranslations = gettext.NullTranslations()
_language = "en"


def set_language(wanted: str | None) -> None:
    """Choose the language of all later messages: `en`, `zh`, or `None` for what LC_ALL, LC_MESSAGES or LANG say."""
    global _catalogue, _language
    _language = wanted or _from_environment()
    directory = Path(__file__).with_name("locale")
    _catalogue = gettext.translation("dttui", directory, languages=[_language], fallback=True)


def language() -> str:
    """Return the language chosen."""
    return _language


def _(message: str) -> str:
    """Return the message in the chosen language. Placeholders are filled afterwards: `_("no {x}").format(x=…)`."""
    return _catalogue.gettext(message) if message else ""


def ngettext(singular: str, plural: str, count: int) -> str:
    """Return the form of the message for `count` in the chosen language."""
    return _catalogue.ngettext(singular, plural, count)


def _from_environment() -> str:
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"
