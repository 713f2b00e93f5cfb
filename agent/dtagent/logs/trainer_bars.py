"""Progress bars of tqdm, rich and what descends from them, and what they say of a training. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from dtagent.logs.trainer_names import HELD_OUT
from dtagent.logs.trainer_numbers import STEP_RATE
from dtagent.logs.trainer_search import MAX_LINE_BYTES, line_around

MOST_BARS = 512
"""Progress bars that are looked at in one block; of more the newest are."""

_BAR_SIGN = re.compile(rb"%\|")
_BAR = re.compile(r"(\d{1,3})%\|[^|]*\|\s*(\d{1,12})/(\d{1,12}) \[")
_PLAIN_BAR = re.compile(r"(\d{1,3})% (\d{1,12})/(\d{1,12}) \[(?=\d)")
_ENDLESS_BAR = re.compile(r"(\b)(\d{1,12})it( )\[")
_RICH_BAR = re.compile(r"([\u2501\u2578\u257a\u2500])\s*(\d{1,12})/(\d{1,12}) +(?=[\d-][\d.:s-])")
_RATE = re.compile(r"(?<![\d.])(\d{1,9}(?:\.\d{1,9})?)(?=\s?[a-z])")
_OF_EPOCHS = re.compile(r"(?:^|\btrain(?:ing)?\s)\W{0,4}epochs?\W{0,4}$", re.IGNORECASE)
_OF_TRAINING = re.compile(r"epoch|train|steps?\b|iter", re.IGNORECASE)
_OF_OTHERS = re.compile(
    rf"(?<![a-z]){HELD_OUT}|\b(?:load|download|map|filter|tokeniz|pack|cach|scan|fetch|upload|sav|predict|generat|infer|process"
    r"|prepar|build|extract|comput|convert|creat|read|compil|writ|export|collect)",
    re.IGNORECASE,
)


class Bar(NamedTuple):
    """A progress bar without a title, as HF Trainer's is."""

    position: int
    length: int
    steps_per_s: float | None


class TitledBar(NamedTuple):
    """A progress bar with what stands before and behind it."""

    title: str
    position: int
    length: int | None
    postfix: str

    @property
    def is_of_training(self) -> bool:
        """Whether its title says so, and not that it is of something else."""
        return bool(_OF_TRAINING.search(self.title)) and not self.is_of_others

    @property
    def is_of_epochs(self) -> bool:
        """Whether it counts epochs, around another that counts their steps."""
        return bool(_OF_EPOCHS.search(self.title))

    @property
    def glued(self) -> str:
        """What another has printed behind it."""
        return self.postfix.partition("]")[2]

    @property
    def is_of_others(self) -> bool:
        """Whether its title says that it is of an evaluation, of loading or the like."""
        return bool(_OF_OTHERS.search(self.title))


def bars(block: bytes, plain: Callable[[bytes], str]) -> list[Bar]:
    """Return the bars in a block of whole lines, in order. A block without one costs no more than the search for it."""
    found = []
    for sign in list(_BAR_SIGN.finditer(block))[-MOST_BARS:]:
        bar = untitled_bar(plain(line_around(block, sign.start(), sign.end())))
        if bar is not None:
            found.append(bar)
    return found


def untitled_bar(text: str) -> Bar | None:
    """Return the progress bar of a line if it has no title; `None` for other lines."""
    found = _find(text)
    if not found or text[: found.start()].strip():
        return None
    return Bar(int(found[2]), int(found[3]), steps_per_s(text[found.end() :]))


def titled_bar(text: str) -> TitledBar | None:
    """Return the progress bar of a line, whatever kind it is of; `None` for other lines."""
    found = _find(text) or _PLAIN_BAR.search(text) or _ENDLESS_BAR.search(text) or _RICH_BAR.search(text)
    if not found:
        return None
    title = text[: found.start()]
    length = int(found[3]) if found[3].strip() else None
    return TitledBar(title, int(found[2]), length, text[found.end() : found.end() + MAX_LINE_BYTES])


def steps_per_s(text: str) -> float | None:
    """Return the steps a second of a bar's `[00:01<00:18,  3.00it/s]`, or `1.50s/it` where they take longer."""
    for number in _RATE.finditer(text[:200]):
        rate = STEP_RATE.match(text, number.end())
        value = float(number[1])
        if rate and value:
            return round((1000 if rate[2] else 1) / value, 4) if rate[1] or rate[2] else value
    return None


def _find(text: str) -> re.Match[str] | None:
    sign = text.find("%|")
    return _BAR.search(text, max(0, sign - 3)) if sign > 0 else None
