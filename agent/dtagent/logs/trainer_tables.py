"""Tables that trainers print a row at a time: columns under a header, or boxes of names and values. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from dtagent.logs.trainer_names import key_of, meaning_of
from dtagent.logs.trainer_numbers import to_number

MAX_COLUMNS = 40
MAX_OTHERS = 8
"""Lines in a row that are no row, after which a table is over."""

_GAP = re.compile(r"\s{2,}")
_CELL = re.compile(r"([-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|[-+]?inf)(?: ?(ms|s|%|K|M|G))?", re.IGNORECASE)
_RULE = re.compile(r"[\s|+:=\u2500-\u257f-]*$")
_BARS = re.compile(r"[|\u2502\u2503]")
_BOX = re.compile(
    r"\s{0,8}[|\u2502\u2503]\s{1,8}([A-Za-z][\w /.-]{0,60}?)\s*[|\u2502\u2503]\s*([^|\s]{0,24})\s*[|\u2502\u2503]\s*$"
)
_STEP_COLUMNS = frozenset({"#", "steps"})
_EPOCH_COLUMNS = frozenset({"e", "epoch", "epochs"})
_PRELIMINARY = frozenset({"loss_tok2vec", "loss_transformer"})
"""spaCy's columns of what the others are built on."""
_TIMES = {"train_iter_(time)": "_step_s"}
"""nerfstudio's."""


class TableRow(NamedTuple):
    """What a row says."""

    step: int | None
    epoch: int | None
    numbers: dict[str, float]


class TableColumns:
    """What the columns of a table are, by its header."""

    def __init__(
        self, header: tuple[str, ...], step: int | None, epoch: int | None, loss: int, others: dict[int, str]
    ) -> None:
        self.header = header
        self._step, self._epoch, self._loss, self._others = step, epoch, loss, others
        self._strangers = 0
        self._last_step: int | None = None
        self.is_over = False

    def row(self, text: str) -> TableRow | None:
        """Return what a row says; `None` for what is none, and for one that was drawn before."""
        cells = _cells(text)
        numbers = [_number(cell) for cell in cells[: len(self.header)]]
        if len(cells) < max(2, self._loss + 1) or None in (numbers[0], numbers[self._loss]):
            self._strangers += not _RULE.match(text)
            self.is_over = self._strangers > MAX_OTHERS
            return None
        self._strangers = 0
        step, epoch = self._whole(numbers, self._step), self._whole(numbers, self._epoch)
        if self._step is not None:
            if step is None or (self._last_step is not None and step < self._last_step):
                return None  # A live table draws its rows again.
            self._last_step = step
        told = {
            name: value for at, name in self._others.items() if at < len(numbers) and (value := numbers[at]) is not None
        }
        loss = numbers[self._loss]
        return TableRow(step, epoch, {**told, "loss": loss} if loss is not None else told)

    @staticmethod
    def _whole(numbers: list[float | None], at: int | None) -> int | None:
        value = numbers[at] if at is not None and at < len(numbers) else None
        return int(value) if value is not None and abs(value) < 1e18 else None


def columns_of(text: str) -> TableColumns | None:
    """Return the columns of a header that names a loss and a step or an epoch; `None` for other lines."""
    cells = _cells(text)
    if not 3 <= len(cells) <= MAX_COLUMNS or any(_number(cell) is not None for cell in cells):
        return None
    keys = [key_of(cell.partition("(")[0]) for cell in cells]
    step = _first(keys, lambda key: key in _STEP_COLUMNS or bool((meaning := meaning_of(key)) and meaning.step))
    epoch = _first(keys, lambda key: key in _EPOCH_COLUMNS)
    if step is None and epoch is None:
        return None
    losses = [at for at, key in enumerate(keys) if (meaning := meaning_of(key)) and meaning.loss is not None]
    parts = [at for at, key in enumerate(keys) if (meaning := meaning_of(key)) and meaning.is_part]
    parts = [at for at in parts if keys[at] not in _PRELIMINARY] or parts
    if not losses and not parts:
        return None
    loss = min(losses, key=lambda at: _rank(keys[at])) if losses else parts[0]
    others: dict[int, str] = {}
    for at, key in enumerate(keys):
        meaning = meaning_of(key)
        if at in (step, epoch, loss):
            continue
        name = _TIMES.get(key_of(cells[at])) or (meaning and (meaning.held_out or meaning.metric))
        if name == "_time":
            name = "_step_s" if step is None else None
        if name is not None and name not in others.values():
            others[at] = name
    return TableColumns(tuple(keys), step, epoch, loss, others)


def box_row(text: str) -> tuple[str, float | None] | None:
    """Return name and value of a row as `|    loss    | 0.245 |`; the value is `None` in the heading of a group."""
    found = _BOX.match(text)
    if not found:
        return None
    return key_of(found[1]), (to_number(found[2]) if _CELL.fullmatch(found[2]) else None)


def _cells(text: str) -> list[str]:
    text = text.strip()
    if len(_BARS.findall(text)) >= 2:
        return [cell.strip() for cell in _BARS.split(text.strip("|\u2502\u2503"))]
    return _GAP.split(text)


def _number(cell: str) -> float | None:
    """Return the number of a cell, in seconds where it is a time; what stands in brackets behind it does not count."""
    found = _CELL.fullmatch(cell.partition("(")[0].partition("/")[0].strip())
    if not found:
        return None
    scale = {"ms": 0.001, "K": 1e3, "M": 1e6}.get(found[2] or "", 1.0)
    return to_number(found[1]) * scale


def _first(keys: list[str], holds: Callable[[str], bool]) -> int | None:
    return next((at for at, key in enumerate(keys) if holds(key)), None)


def _rank(key: str) -> int:
    meaning = meaning_of(key)
    return meaning.loss if meaning is not None and meaning.loss is not None else 0
