"""Messages in the language of the person: English is the source, catalogues are gettext's, under dttui/locale."""

from __future__ import annotations

import gettext
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def N_(message: str) -> str:
    """Mark a message that is translated where it is used."""
    return message


def ngettext(singular: str, plural: str, count: int) -> str:
    """Return the form of the message for `count` in the chosen language."""
    return _catalogue.ngettext(singular, plural, count)


class Told(str):
    """A message in the language of the moment that knows how to be told again in another one."""

    recipe: dict[str, Any]
    """`id`, `plural` where there is one, and `values`: plain data, for a file."""


def told(message: str, /, **values: object) -> Told:
    """Return the message in the chosen language, its placeholders filled; for what is stored and read again later."""
    return _tell({"id": message, "values": _plain(values)})


def ntold(singular: str, plural: str, count: int, /, **values: object) -> Told:
    """Return `told` of the form of the message for `count`, which fills `{count}`."""
    return _tell({"id": singular, "plural": plural, "values": {"count": count, **_plain(values)}})


def retell(recipe: Mapping[str, Any]) -> str:
    """Return a stored message in the language chosen now. Raises LookupError, ValueError or TypeError for a bad one."""
    values = {
        name: retell(value) if isinstance(value, dict) else value for name, value in dict(recipe["values"]).items()
    }
    identity, plural = str(recipe["id"]), recipe.get("plural")
    return (ngettext(identity, str(plural), int(values["count"])) if plural else _(identity)).format(**values)


def _tell(recipe: dict[str, Any]) -> Told:
    message = Told(retell(recipe))
    message.recipe = recipe
    return message


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value.recipe if isinstance(value, Told) else value for name, value in values.items()}


def _from_environment() -> str:
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"
