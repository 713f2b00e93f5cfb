"""The numbers of a line of free form, by the names before them: `name: 1.0`, `name=1.0`, `name 1.0`. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from dtagent.logs.trainer_names import (
    ALL_OVER,
    HELD_OUT,
    MOST_NAMES,
    OF_AN_EPOCH,
    WHOLE_STEP,
    Meaning,
    key_of,
    meaning_of,
)

MAX_NUMBERS = 40
"""Numbers that are taken from one line."""
MAX_NAME = 48
"""Characters before a number that are searched for its name."""
NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan(?! iter)|inf(?:inity)?)"
"""`number of nan iterations` is one of Megatron-LM's names."""

_RATED = r"(?:it|its|iters?|steps?|batch|batches|ba|imgs?|images|tok|tokens|samples?|examples|frames|seqs?)"
_VALUE = re.compile(
    rf"(?<![\w.])({NUMBER})(%|GiB|ms(?![a-z/])|s(?![a-z/])|[km](?= ?(?:tok|samp|im|seq))|[kmg](?![\w/])"
    rf"|(?={_RATED}/s)|(?![a-z\d.]))",
    re.IGNORECASE,
)
_OF = re.compile(r" {0,8}/ {0,8}(\d{1,12})(?![\d.])")
_UNIT = re.compile(r" ?(ms|s|sec|seconds)\b(?!/)")
_SPEED = re.compile(
    r" ?(tok|tokens|samples|sequences|seqs?|images|imgs?|examples|frames)(?:/| per )s(?:ec(?:ond)?)?"
    r"(?:(/gpu|/device|/rank| per gpu)|(?!\w*\s*[:=]))",
    re.IGNORECASE,
)
"""After a number; before a colon it is the name of the next one."""
_BARE_SPEED = re.compile(r"/s(?![\w/])")
STEP_RATE = re.compile(
    r" ?(?:(?:it|its|iters?|iterations?|steps?|batch(?:es)?|ba|updates?)(?:/| per )s(?:ec(?:ond)?)?\b"
    r"|(?:(s)|(ms)) ?/ ?(?:it|iter|step|batch)\b)(?!\s*[:=])",
    re.IGNORECASE,
)
"""After a number: steps a second, or (group 1) seconds or (group 2) milliseconds a step."""
_NAME = re.compile(r"[A-Za-z][\w./-]*(?: [A-Za-z][\w./-]*)*$")
_IN_SECONDS = re.compile(r"\((?:t|s|sec|seconds?)\)$")
_IN_MS = re.compile(r"\(ms\)$")
_HELD_OUT = re.compile(rf"(?<![\w./]){HELD_OUT}(?![\w./])", re.IGNORECASE)
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9}
_HUGE = 1e18


@dataclass
class Numbers:
    """What a line says, by what its names mean."""

    metrics: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)
    """By the trainer's own name."""
    parts: dict[str, float] = field(default_factory=dict)
    held_out: dict[str, float] = field(default_factory=dict)
    step: int | None = None
    step_rank: int = 0
    step_name: str = ""
    step_of: int | None = None
    """How many steps there are, where that stands behind it."""
    others: int = 0
    """Numbers whose name is not known."""

    def loss(self) -> float | None:
        """Return the loss of the training; of several the one that is named most plainly."""
        if self.losses:
            return min(self.losses.items(), key=lambda item: _loss_rank(item[0]))[1]
        return next(iter(self.parts.values())) if len(self.parts) == 1 else None

    def settle(self) -> None:
        """Turn the times of steps into speeds, and leave out what only served for that."""
        take = self.metrics.pop
        step_s, step_ms, time_s = take("_step_s", None), take("_step_ms", None), take("_time_s", None)
        batch, nans, bare = take("_batch", None), take("_nans", None), take("_bare_per_s", None)
        is_metered = take("_is_metered", None) is not None
        if step_s is None and step_ms is not None:
            step_s = step_ms / 1000
        if step_s is None and is_metered:
            step_s = time_s
        if take("_forward_s", None) is not None:
            step_s = None  # ESPnet's `iter_time` is that of loading.
        if step_s and math.isfinite(step_s) and step_s > 0:
            self.metrics.setdefault("steps_per_s", float(f"{1 / step_s:.5g}"))
            if batch:
                self.metrics.setdefault("samples_per_s", batch / step_s)
        if bare is not None:
            self.metrics.setdefault("samples_per_s", bare)
        self.metrics = {name: number for name, number in self.metrics.items() if not name.startswith("_")}
        if nans and not self.losses:
            self.losses["loss"] = math.nan  # Megatron-LM leaves out a loss that is no number, and counts it.


def numbers_of(text: str) -> Numbers:
    """Return the numbers of a text that have a known name before them, or are a speed.

    Between name and number there are `:`, `=` or blanks, and perhaps a bracket; of the words before it the last count.
    """
    found = Numbers()
    end = count = 0
    # What comes after a word for held-out data is of that.
    held_out = _HELD_OUT.search(text)
    held_from = held_out.start() if held_out else len(text)
    for value in _VALUE.finditer(text):
        begin = value.start()
        gap = text[end:begin]
        if gap.lstrip().startswith(")"):  # The number before it was part of the name: `actor/lr(1e-4):0.010`.
            gap = text[max(0, begin - MAX_NAME) : begin]
        end = value.end()
        number, unit = to_number(value[1]), value[2].lower()
        if _take_speed(found, text, end, number, unit):
            continue
        name = gap[-MAX_NAME:]
        if not _take_named(found, text, value, name, is_held_out=held_from < begin):
            found.others += name.endswith(("=", ": ", ":"))
            continue
        count += 1
        if count == MAX_NUMBERS:
            break
    return found


def _take_speed(found: Numbers, text: str, end: int, number: float, unit: str) -> bool:
    """Take a number by what stands behind it; return whether that says what it is."""
    speed = _SPEED.match(text, end)
    if speed:
        is_tokens = speed[1].lower().startswith("tok")
        name = "tokens_per_s" if is_tokens else "samples_per_s"
        if speed[2] is not None:
            if not is_tokens:
                return True
            name = "tokens_per_s_per_gpu"
        found.metrics.setdefault(name, number * _FACTORS.get(unit, 1.0))
        return True
    rate = STEP_RATE.match(text, end)
    if rate and number > 0:
        scale = 1.0 if rate[1] else 1000.0
        found.metrics.setdefault("steps_per_s", float(f"{scale / number:.5g}") if rate[1] or rate[2] else number)
        return True
    if not unit and _BARE_SPEED.match(text, end):
        found.metrics.setdefault("_bare_per_s", number)
        return True
    return False


def _take_named(found: Numbers, text: str, value: re.Match[str], before: str, *, is_held_out: bool) -> bool:
    """Take a number by its name, unless there is one of its name already; return whether the name is known."""
    number, unit = to_number(value[1]), value[2].lower()
    keys, named_seconds = _naming(before)
    seconds = 0.001 if unit == "ms" else named_seconds or 1.0
    is_timed = unit in ("ms", "s") or named_seconds is not None
    if not unit:
        spelt = _UNIT.match(text, value.end())
        if spelt:
            is_timed, seconds = True, 0.001 if spelt[1] == "ms" else 1.0
    for place, key in enumerate(keys):
        meaning = meaning_of(key)
        if meaning is None and "/" in key and _take_pair(found, key, number, value, text):
            return True
        if meaning is None and key == WHOLE_STEP and not place:
            meaning = meaning_of("step")
        if is_timed and meaning is not None and meaning.step:
            meaning = Meaning(metric="_step_s")  # `Batch (t): 0.710`, `iter 12 ms`.
        if meaning is not None:
            _take(found, key, meaning, number, value, text, seconds=seconds, is_held_out=is_held_out)
            return True
    if seconds != 1.0 and number > 0 and not before.strip(" |,;-("):
        found.metrics.setdefault("_step_ms", number)  # llm.c: `| 3031.34 ms |`.
    return False


def _take(
    found: Numbers,
    key: str,
    meaning: Meaning,
    number: float,
    value: re.Match[str],
    text: str,
    *,
    seconds: float,
    is_held_out: bool,
) -> None:
    if meaning.step:
        _take_step(found, key, meaning.step, number, value, text)
    elif meaning.held_out is not None:
        found.held_out.setdefault(meaning.held_out, number)
    elif meaning.loss is not None or meaning.is_part:
        if is_held_out and "train" not in key:
            found.held_out.setdefault("val_loss", number)
        else:
            (found.parts if meaning.is_part else found.losses).setdefault(key, number)
    elif meaning.metric is not None:
        _take_metric(found.metrics, meaning.metric, number, value[2].lower(), seconds=seconds)


def _take_pair(found: Numbers, key: str, number: float, value: re.Match[str], text: str) -> bool:
    """Take both of `epoch/iter: 0/19` and the like; return whether the line has both."""
    second = _OF.match(text, value.end())
    names = key.split("/")
    if second is None or len(names) != 2:
        return False
    for name, told in zip(names, (number, float(second[1])), strict=True):
        meaning = meaning_of(name)
        if name == "epoch":
            found.metrics.setdefault("epoch", told)
        elif meaning is not None and meaning.step and math.isfinite(told):
            found.step, found.step_rank, found.step_name = int(told), meaning.step, name
    return True


def _take_step(found: Numbers, key: str, rank: int, number: float, value: re.Match[str], text: str) -> None:
    number *= _FACTORS.get(value[2].lower(), 1.0)
    if not math.isfinite(number) or not 0 <= number < _HUGE or number != int(number):
        return
    # Of litgpt's `iter 10 step 5` the first counts, though the second counts more: it comes more often.
    is_rarer = found.step_name == "iter" and rank < ALL_OVER and found.step is not None and found.step > number
    if rank <= found.step_rank or is_rarer:
        return
    length = _OF.match(text, value.end())
    if key in OF_AN_EPOCH and length is None and "epoch" not in found.metrics:
        return  # `batch=16` is a size.
    found.step, found.step_rank, found.step_name = int(number), rank, key
    found.step_of = int(length[1]) if length else None


def _take_metric(metrics: dict[str, float], name: str, number: float, unit: str, *, seconds: float) -> None:
    if "_per_s" in name:
        number *= _FACTORS.get(unit, 1.0)
    if name == "_time":
        metrics.setdefault("_time_s", number * seconds)
        if seconds != 1.0:
            metrics.setdefault("_step_ms", number)
    elif name == "_step_s":
        metrics.setdefault(name, number * seconds)
    elif name == "mfu" and number < 0:
        pass  # nanoGPT has no mfu yet for its first steps, and prints -100%.
    else:
        metrics.setdefault(name + {"%": "_percent", "gib": "_gib"}.get(unit, ""), number)


@lru_cache(maxsize=MOST_NAMES)
def _naming(before: str) -> tuple[tuple[str, ...], float | None]:
    """Return what a number may be called, and the seconds of the unit that stands with the name, where one does."""
    name = before.rstrip(" :=")
    seconds = 0.001 if _IN_MS.search(name) else 1.0 if _IN_SECONDS.search(name) else None
    return tuple(_keys(before)), seconds


def _keys(before: str) -> Iterator[str]:
    """Yield what a number may be called: the words before it, then without the first of them, and so on."""
    text = before.rstrip(" \t[")
    if text.endswith(("... (", ":(", "=(")):
        text = text[:-1].rstrip()
    text = text.rstrip(":=#") if text != before or text.endswith((":", "=", "#")) else ""
    text = text.rstrip()
    if text.endswith(")"):
        text = text.rpartition("(")[0].rstrip()
    name = _NAME.search(text)
    words = name[0].split(" ") if name else []
    for first in range(len(words)):
        yield key_of(" ".join(words[first:]))


def _loss_rank(key: str) -> int:
    meaning = meaning_of(key)
    return meaning.loss if meaning is not None and meaning.loss is not None else 0


def to_number(text: str) -> float:
    """Return a number as it is printed, with commas between thousands; what is none is NaN."""
    try:
        return float(text.replace(",", ""))
    except (ValueError, OverflowError):
        return math.nan
