"""Messages in the language of the person: English is the source, catalogues are gettext's, under dttui/locale.

A message remembers what it was made of, so that what is written into a file can be told again in another language.
"""

from __future__ import annotations

import gettext
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from dttui.variables import variables

LANGUAGES = ("en", "zh")


class _Catalogue:
    """One language, and its messages that were asked for, their placeholders empty."""

    def __init__(self, language: str, translations: gettext.NullTranslations) -> None:
        self.language = language
        self.translations = translations
        self.messages: dict[str, Message] = {}


_of_process = _Catalogue("en", gettext.NullTranslations())
_of_call: ContextVar[_Catalogue | None] = ContextVar("language", default=None)
_catalogues: dict[str, _Catalogue] = {}
"""By language, those that calls have asked for."""


def set_language(wanted: str | None) -> None:
    """Choose the language of this process: `en`, `zh`, or `None` for what LC_ALL, LC_MESSAGES or LANG say.

    What was chosen for the present call before that no longer counts.
    """
    global _of_process
    name = wanted or _from_environment()
    _of_process = _Catalogue(name, _catalogue_of(name))
    _catalogues.clear()
    _of_call.set(None)


@contextmanager
def speaking(wanted: str | None) -> Iterator[None]:
    """Have all messages inside in a language; `None` changes nothing. Other tasks and threads keep their own."""
    if wanted is None:
        yield
        return
    if wanted not in _catalogues:
        _catalogues[wanted] = _Catalogue(wanted, _catalogue_of(wanted))
    before = _of_call.set(_catalogues[wanted])
    try:
        yield
    finally:
        _of_call.reset(before)


def _catalogue() -> _Catalogue:
    return _of_call.get() or _of_process


def language() -> str:
    """Return the language chosen."""
    return _catalogue().language


class Message(str):
    """A message in the language of the moment that knows how to be told again in another one.

    It stays one where its placeholders are filled and where text is added to it.
    """

    recipe: dict[str, Any]
    """Plain data, for a file: `id`; `plural` and `count` where there are two forms; `values` once filled in."""

    @classmethod
    def of(cls, text: str, recipe: dict[str, Any]) -> Message:
        """Return the text that a recipe makes."""
        message = cls(text)
        message.recipe = recipe
        return message

    def format(self, *args: object, **values: object) -> str:
        """Fill the placeholders."""
        if args or "values" in self.recipe:
            return super().format(*args, **values)
        return self.filled(values)

    def filled(self, values: Mapping[str, object]) -> Message:
        """Fill the placeholders of a message, for the first time."""
        return Message.of(super().format(**values), {**self.recipe, "values": _plain(values)})

    def __add__(self, other: str) -> str:
        return _both(self, other)

    def __radd__(self, other: str) -> str:
        return _both(other, self)


def _(message: str) -> str:
    """Return the message in the chosen language. Placeholders are filled afterwards: `_("no {x}").format(x=…)`."""
    return _message(message)


def in_all_languages(message: str) -> tuple[str, ...]:
    """Return a message, its placeholders empty, in each of the languages; for what was written in one of them."""
    return tuple(_catalogue_of(name).gettext(message) for name in LANGUAGES)


def N_(message: str) -> str:
    """Mark a message that is translated where it is used."""
    return message


def ngettext(singular: str, plural: str, count: int) -> str:
    """Return the form of the message for `count` in the chosen language."""
    return _form(singular, plural, count)


def msg(message: str, /, **values: object) -> Message:
    """Return the message in the chosen language, its placeholders filled; for what is stored and read again later."""
    return _message(message).filled(values)


def nmsg(singular: str, plural: str, count: int, /, **values: object) -> Message:
    """Return `told` of the form of the message for `count`, which fills `{count}`."""
    return _form(singular, plural, count).filled({"count": count, **values})


def joined(separator: str, parts: Iterable[str]) -> str:
    """Return `separator.join(parts)`; the messages among them can be told again."""
    whole = ""
    for number, part in enumerate(parts):
        whole = whole + (separator + part) if number else part
    return whole


def in_a_row(names: Iterable[str]) -> Message:
    """Return names with what stands between two of them in the language of the moment."""
    return _between(msg("{first}, {second}", first="", second=""), names)


def sentences(parts: Iterable[str]) -> Message:
    """Return sentences one after another, as the language of the moment has it: Chinese parts them by nothing."""
    return _between(msg("{first} {second}", first="", second=""), parts)


def _between(between: Message, texts: Iterable[str]) -> Message:
    parts = list(texts)
    values: dict[str, object] = {f"name{number}": part for number, part in enumerate(parts)}
    template = "{between}".join(f"{{{name}}}" for name in values)
    return Message.of(between.join(parts), {"id": template, "values": _plain({**values, "between": between})})


def retell(recipe: Mapping[str, Any]) -> str:
    """Return a stored message in the language chosen now. Raises LookupError, ValueError or TypeError for a bad one."""
    identity, plural = str(recipe["id"]), recipe.get("plural")
    values = {
        name: retell(value) if isinstance(value, dict) else value
        for name, value in dict(recipe.get("values", {})).items()
    }
    if plural:
        message = str(_form(identity, str(plural), int(recipe["count"])))
    else:  # Of nothing gettext tells the head of the catalogue.
        message = _catalogue().translations.gettext(identity) if identity else ""
    return message.format(**values) if "values" in recipe else message


def told_now(text: str) -> str:
    """Return a message in the language chosen now; any other text as it is."""
    return retell(text.recipe) if isinstance(text, Message) else text


def recipes(data: object, *path: str) -> list[list[Any]]:
    """Return the messages among plain data, each as the keys that lead to it and its recipe."""
    if isinstance(data, Message):
        return [[list(path), data.recipe]]
    if isinstance(data, Mapping):
        return [found for name, value in data.items() for found in recipes(value, *path, str(name))]
    return []


def retell_within(data: dict[str, Any], found: object) -> None:
    """Tell messages among plain data again, in place. Raises as `retell`, and AttributeError, for what is no recipe."""
    for path, recipe in found if isinstance(found, list) else ():
        *parents, name = path
        inner: Any = data
        for parent in parents:
            inner = inner[parent]
        if isinstance(inner[name], str):
            inner[name] = retell(recipe)


def _message(message: str) -> Message:
    catalogue = _catalogue()
    known = catalogue.messages.get(message)
    if known is None:
        text = catalogue.translations.gettext(message) if message else ""
        known = catalogue.messages[message] = Message.of(text, {"id": message})
    return known


def _form(singular: str, plural: str, count: int) -> Message:
    text = _catalogue().translations.ngettext(singular, plural, count)
    return Message.of(text, {"id": singular, "plural": plural, "count": count})


def _both(first: str, second: str) -> str:
    values = {"first": first, "second": second}
    return Message.of(str.__add__(first, second), {"id": "{first}{second}", "values": _plain(values)})


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    """Return values as a file can hold them: messages as their recipes, what is not plain as its text."""

    def plain(value: object) -> object:
        if isinstance(value, Message):
            return value.recipe
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float) and math.isfinite(value):
            return float(value)
        return format(value) if type(value) is not str else value

    return {name: plain(value) for name, value in values.items()}


class _Translations(gettext.GNUTranslations):
    """A catalogue in which a word that also has a plural is found by itself, as in Python 3.11.2 it is not."""

    def gettext(self, message: str) -> str:
        told = super().gettext(message)
        return told if told != message else self.ngettext(message, message, 1)


def _catalogue_of(name: str) -> gettext.NullTranslations:
    directory = Path(__file__).with_name("locale")
    return gettext.translation("dttui", directory, languages=[name], class_=_Translations, fallback=True)


def _from_environment() -> str:
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG"):
        value = variables().get(name)
        if value:
            return "zh" if value.lower().startswith("zh") else "en"
    return "en"
