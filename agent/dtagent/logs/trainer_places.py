"""Where in the training a line is: `Epoch: [1]  [ 20/100]`, `[1, 2000] loss`; and the step that this comes to. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import NamedTuple

_EPOCH_AND_PLACE = re.compile(
    r"(?:\bepoch(?:\(train\))?|\btrain(?:ing)?(?: epoch)?)[\s:=]{0,8}\[?\s{0,8}(\d{1,9})(?:\s*/\s*\d{1,9})?"
    r"[\s\]|:,]{1,12}\[?\s{0,12}(\d{1,12})\s{0,4}/\s{0,12}(\d{1,12})(?![\d.])( \(\s{0,4}\d{1,3}%\)\])?",
    re.IGNORECASE,
)
_TWO_BRACKETS = re.compile(r"\W{0,8}\[\s*(\d{1,9})/\d{1,9}\]\s?\[\s*(\d{1,12})/(\d{1,12})\]")
_PAIR = re.compile(r"\W{0,8}\[\s*(\d{1,9}),\s+(\d{1,12})\]\s*(?:train(?:ing)?[ _])?loss", re.IGNORECASE)
_BEHIND = re.compile(r"loss[:= ].{1,40}\[\s*(\d{1,12})/\s*(\d{1,12})\]\s*$", re.IGNORECASE)
_ALONE = re.compile(r"\s{0,4}\[\s*(\d{1,12})(?:/(\d{1,12}))?\]\s*(?:train(?:ing)?[ _])?loss\b", re.IGNORECASE)
_HEADING = re.compile(
    r"(?:^|[:|\]>-] |\t)[ \t=*#-]{0,40}(?:\[?(epoch)|(?:global |train )?(step|iter(?:ation)?))[ \t:=#]{1,4}(\d{1,12})"
    r"(?:\s?/\s?\d{1,12})?\W{0,40}$",
    re.IGNORECASE,
)
_COMPOSER = re.compile(
    r"(?:\[epoch=(\d{1,9})(?:/\d+)?\])?\[(?:batch|step)=(\d{1,12})/(\d{1,12})(?:,epoch=\d+)?\]:?\s*$"
)
_ESPNET = re.compile(r"(\d{1,9})epoch:train:\d{1,12}-(\d{1,12})batch:")


_CATALYST = re.compile(r"\W{0,8}train \((\d{1,9})/\d{1,9}\) ")


class LinePlace(NamedTuple):
    """Where a line says that the training is."""

    epoch: int | None
    position: int | None
    """In the epoch, or in all."""
    length: int | None = None
    """Of the epoch, in the same unit."""
    is_block: bool = False
    """Whether indented lines follow that are of it."""
    is_in_samples: bool = False


def place_of(text: str) -> LinePlace | None:
    """Return the place that a line names by where its numbers stand; `None` where it does so by words or not at all."""
    found = _EPOCH_AND_PLACE.search(text)
    if found:
        # PyTorch's MNIST example and open_clip count samples; timm, whose line begins without `Epoch`, batches.
        in_samples = bool(found[4]) and "poch" in found[0]
        return LinePlace(int(found[1]), int(found[2]), int(found[3]), is_in_samples=in_samples)
    found = _TWO_BRACKETS.match(text)
    if found:
        return LinePlace(int(found[1]), int(found[2]), int(found[3]))
    found = _PAIR.match(text) or _ESPNET.search(text)
    if found:
        return LinePlace(int(found[1]), int(found[2]))
    found = _CATALYST.match(text)
    if found:
        return LinePlace(int(found[1]), None)
    found = _BEHIND.search(text)
    if found:
        return LinePlace(None, int(found[1]), int(found[2]), is_in_samples=True)
    found = _ALONE.match(text)
    return LinePlace(None, int(found[1]), int(found[2]) if found[2] else None) if found else None


def heading_of(text: str) -> LinePlace | None:
    """Return the place that a line of its own tells for those below it: `Epoch 3`, `[epoch=1][batch=5/50]:`."""
    found = _COMPOSER.search(text)
    if found:
        return LinePlace(int(found[1]) if found[1] else None, int(found[2]), int(found[3]), is_block=True)
    found = _HEADING.search(text)
    if not found:
        return None
    return LinePlace(int(found[3]), None) if found[1] else LinePlace(None, int(found[3]))


@dataclass
class StepCount:
    """Counts steps over epochs, for trainers that begin anew with each."""

    epoch: int | None = None
    first_epoch: int | None = None
    has_epoch_0: bool = False
    goes_on: bool = False
    """Whether positions count on over epochs."""
    position: int = 0
    stride: int = 0
    before: int = 0
    """Steps of the epochs before, where their length is not told."""

    @classmethod
    def of(cls, state: object) -> StepCount:
        """Return the count that another daemon has written down; a new one where that is none."""
        if not isinstance(state, list) or not all(item is None or isinstance(item, int) for item in state):
            return cls()
        names = [item.name for item in fields(cls)]
        if len(state) != len(names) or None in state[2:]:
            return cls()
        return cls(**dict(zip(names, state, strict=True)))

    def step(self, epoch: int | None, position: int, length: int | None, *, is_exact: bool = True) -> int:
        """Return how many steps a position comes to, as the trainer counts: from 0 or from 1.

        Args:
            epoch: as it is printed; `None` where none is.
            position: in it.
            length: of an epoch.
            is_exact: whether the position is surely one in the epoch.
        """
        if epoch is None:
            begins_anew = length is not None and position < self.position and self.position >= length * 0.9
            self.before += length if begins_anew and length is not None else 0
            self.position = position
            return self.before + position
        self.has_epoch_0 = self.has_epoch_0 or epoch == 0
        if self.first_epoch is None:
            self.first_epoch = epoch
        if self.epoch is not None and epoch != self.epoch:
            self.goes_on = position > self.position
            if not self.goes_on and epoch > self.epoch:
                self.before += length or self.position + max(1, self.stride)
        elif self.epoch is not None:
            self.stride = max(0, position - self.position) or self.stride
        self.epoch, self.position = epoch, position
        if self.goes_on:
            return position
        is_first = self.first_epoch <= 1
        if length is not None and (is_exact or is_first):
            return max(0, epoch - (not self.has_epoch_0)) * length + position
        return self.before + position
