"""Options of a program, told from what follows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dttui.i18n import _
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.dialects.shell.open_parts import Openness
from dttui.spec.problems import did_you_mean, printable


class OptionError(ValueError):
    """A word of a command line is no option that its program has.

    Args:
        word: which.
        message: what is wrong with it.
        hint: what to do.
    """

    def __init__(self, word: Word, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.word = word
        self.message = message
        self.hint = hint


def names(text: str) -> frozenset[str]:
    """Return the words of a text: options and the like, written one after another."""
    return frozenset(text.split())


@dataclass(frozen=True)
class Options:
    """The options that a program has."""

    program: str
    """As people call it."""
    valued: frozenset[str] = frozenset()
    """Those with a value, by their long spelling."""
    flags: frozenset[str] = frozenset()
    """Those without."""
    pairs: frozenset[str] = frozenset()
    """Those with two values, such as `--mca btl tcp`."""
    short: Mapping[str, str] = field(default_factory=dict)
    """Other spellings, and the long one of each."""
    is_complete: bool = False
    """Whether these are all it has, so that another one is a mistake; otherwise that is taken for one without a value,
    or has it after `=`."""
    takes_underscores: bool = True
    """Whether `_` in it is as good as `-`, and what only one begins with stands for it."""

    def parse(self, words: Sequence[Word]) -> tuple[tuple[Given, ...], tuple[Word, ...]]:
        """Return the options at the beginning of words, and the words after them. Raises OptionError."""
        reader = _Reader(self, words)
        given = tuple(reader.options())
        return given, tuple(words[reader.at :])

    def name_of(self, spelt: str) -> str:
        """Return the long spelling of an option; as it is where it is not known."""
        known = self.valued | self.flags | self.pairs
        name = self.short.get(spelt, spelt)
        if self.takes_underscores and spelt.startswith("--"):
            name = self.short.get(name, "--" + spelt[2:].replace("_", "-"))
            meant = [option for option in known if option.startswith(name)]
            if name not in known and len(meant) == 1:
                return meant[0]
        if name not in known and spelt.startswith("-") and not spelt.startswith("--") and f"-{spelt}" in known:
            return f"-{spelt}"
        return name


@dataclass(frozen=True)
class Given:
    """An option that was given."""

    name: str
    """Its long spelling."""
    word: Word
    """The word that it stands in."""
    value: Word
    """Its value; the word itself, where it has none."""
    has_value: bool = True
    """Whether it has one."""
    is_variable: bool = False
    """Whether it is a variable that may be any options."""


def _may_be_options(word: Word) -> bool:
    """Whether a word is a variable that nobody has given, as `srun $SRUN_ARGS python` has one."""
    holes = word.holes
    is_whole = (
        len(holes) == 1
        and word.text == holes[0].text
        and re.fullmatch(r"\$\{?\w*(ARG|OPT|FLAG)\w*\}?", word.text, re.I)
    )
    return bool(is_whole) and holes[0].openness is Openness.NEEDED


class _Reader:
    def __init__(self, options: Options, words: Sequence[Word]) -> None:
        self._options = options
        self._words = words
        self.at = 0

    def options(self) -> Iterator[Given]:
        while self.at < len(self._words):
            word = self._words[self.at]
            if _may_be_options(word) and self.at + 1 < len(self._words):
                self.at += 1
                yield Given(word.text, word, word, has_value=False, is_variable=True)
                continue
            if not word.text.startswith("-") or word.text == "-":
                return
            self.at += 1
            if word.text == "--":
                return
            yield self._option(word)

    def _option(self, word: Word) -> Given:
        options = self._options
        spelt, separator, rest = word.text.partition("=")
        if not spelt.startswith("--") and len(word.text) > 2 and options.short.get(spelt[:2]) in options.valued:
            is_other = options.name_of(spelt) in options.valued | options.flags | options.pairs
            if not is_other:  # -N4
                spelt, separator, rest = word.text[:2], "=", word.text[2:].removeprefix("=")
        name = options.name_of(spelt)
        if name in options.flags and (not separator or not options.is_complete):
            return Given(name, word, word, has_value=False)
        if name in options.pairs:
            values = [self._next(word, name) for _value in range(2 - bool(separator))]
            text = "=".join([rest] * bool(separator) + [value.text for value in values])
            return Given(name, word, Word(text, values[-1].mark, holes=values[-1].holes))
        if name in options.valued:
            value = (
                Word(rest, word.mark, word.holes, word.raw.partition("=")[2]) if separator else self._next(word, name)
            )
            return Given(name, word, value)
        if not options.is_complete:
            value = Word(rest, word.mark, word.holes, word.raw.partition("=")[2]) if separator else word
            return Given(name, word, value, has_value=bool(separator))
        if name in options.flags:
            raise OptionError(word, _("{option} takes no value").format(option=name))
        message = _("{program} has no option {option}").format(program=options.program, option=printable(spelt))
        near = did_you_mean(spelt, (*options.flags, *options.valued))
        raise OptionError(word, message, near or _("The script's own options come after the script."))

    def _next(self, word: Word, name: str) -> Word:
        if self.at == len(self._words):
            raise OptionError(word, _("{option} lacks its value").format(option=name))
        self.at += 1
        return self._words[self.at - 1]
