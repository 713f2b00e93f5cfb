"""Reads training metrics out of the lines that trainers print. Pure: bytes to numbers; no line makes it raise.

The shapes come from the trainers' sources and real output, of which tests/agent/trainer_output has samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from dtagent.protocol.events import PER_GPU, PRINTED

MAX_LINE_BYTES = 4096
"""Longest line that is looked at; trainers' are below 1 KiB."""
MAX_NUMBERS = 40
"""Numbers that are taken from one line."""

MOST_BARS = 512
"""Progress bars that are looked at in one block; of more the newest are."""

_EPOCH_HINT = b"Epoch "
HINTS = (b"oss", b"lr=[", b"SamplesPerSec", _EPOCH_HINT, b"\r\r")
"""A line without any of these does not matter: `loss`, `Loss`, DeepSpeed's two, Keras' epoch, a bar drawn again."""
_HINT = re.compile(b"|".join(re.escape(hint) for hint in HINTS))
_BAR_SIGN = re.compile(rb"%\|")
_BREAK = re.compile(rb"[\r\n]")

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIX = re.compile(r"^(?:\[default\d+\]:|\[\d+(?:,\d+)?\](?:<\w+>)?:|\[rank\d+\]:)\s?")
"""What torchrun, horovodrun and torch's logging put before a line."""

_NUMBER = r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan(?! iter)|inf(?:inity)?)"
"""`number of nan iterations` is one of Megatron-LM's names."""
_VALUE = re.compile(rf"(?<![\w.])({_NUMBER})(%|GiB|[km](?= ?(?:tok|samp|im|seq))|(?![a-z\d.]))", re.IGNORECASE)
_DICT_ITEM = re.compile(rf"['\"]([\w ./@-]{{1,64}})['\"]:\s*['\"]?({_NUMBER})['\"]?(?=\s*[,}}])", re.IGNORECASE)
_BAR = re.compile(r"(\d{1,3})%\|[^|]*\|\s*(\d{1,12})/(\d{1,12}) \[")
_ENDLESS_BAR = re.compile(r"(\b)(\d{1,12})it( )\[")
_STEP_RATE = re.compile(r"(?<![\d.])(\d{1,9}(?:\.\d{1,9})?)(?:(?:it|steps?|batch(?:es)?)/s|(s/(?:it|step|batch)))")
_KERAS = re.compile(r"\s*(\d{1,12})/(\d{1,12}) ")
_EPOCH = re.compile(r"\s*epoch:?\s+(\d{1,9})(?:/(\d{1,9}))?", re.IGNORECASE)
_SPEED = re.compile(r" ?(tok|tokens|samples|sequences|images|imgs?)(?:/| per )s(?!\w*\s*[:=])", re.IGNORECASE)
"""After a number; before a colon it is the name of the next one."""
_NAME = re.compile(r"[A-Za-z][\w./-]*(?: [A-Za-z][\w./-]*)*$")
MAX_NAME = 48
"""Characters before a number that are searched for its name."""
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6}

_STEPS = frozenset({"step", "global_step", "train_step", "iter", "iteration"})
_WHOLE_STEP = "steps"
"""DeepSpeed's pipeline counts in the plural; in `max steps: 500` it is something else."""
_LOSSES = frozenset({"loss", "train_loss", "training_loss", "lm_loss", "total_loss", "step_loss", "train_loss_step"})
_HELD_OUT = re.compile(r"(?:val|valid|validation|eval|test)_(?:\w+_)?loss")
_NAMES = {
    **PRINTED,
    "tokens_per_gpu": PER_GPU,
    "tokens_per_gpu_per_second": PER_GPU,
    "tokens_per_second_per_device": PER_GPU,
    "accuracy": "accuracy",
    "loss_scale": "loss_scale",
    "lm_loss_value": "val_loss",
    "memory": "memory",
    "mfu": "mfu",
    "throughput_per_gpu": "tflops_per_gpu",
    "tflops": "tflops_per_gpu",
    "elapsed_time_per_iteration": "_step_ms",
    "global_batch_size": "_batch",
    "number_of_nan_iterations": "_nans",
}
"""What trainers call a number → what it is called here. In lines of free form all other names are left out."""


def spans(block: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the lines begin and end that may hold a metric, in order; a newline or a return ends a line.

    Args:
        block: whole lines. Those without a hint cost no more than the search for a few bytes.
    """
    if not any(hint in block for hint in HINTS):
        return
    end = -1
    for hint in _HINT.finditer(block):
        if _place(block, hint) >= end:
            begin, end = _line_at(block, _place(block, hint))
            yield begin, end


def count_hints(block: bytes) -> int:
    """Return about how many lines `spans` would yield, and never too few, at a fraction of what that takes."""
    return sum(map(block.count, HINTS))


def some_spans(block: bytes, most: int) -> Iterator[tuple[int, int]]:
    """Yield at most so many of the lines of `spans`, evenly spread over the block, and always the last of them.

    Where one names an epoch before another, as Keras does, that is yielded too: what follows is counted from there.
    """
    last = max(map(block.rfind, HINTS))
    if last < 0 or not most:
        return
    end = -1
    for number in range(most - 1):
        hint = _HINT.search(block, max(0, end, number * len(block) // most))
        if hint is None:
            break
        begin, stop = _line_at(block, _place(block, hint))
        epoch = block.rfind(_EPOCH_HINT, max(0, end), begin)
        if epoch >= 0:
            yield _line_at(block, epoch)
        yield begin, stop
        end = stop
    begin, stop = _line_at(block, last)
    if begin >= end:
        yield begin, stop


def _place(block: bytes, hint: re.Match[bytes]) -> int:
    return hint.end() if block[hint.start()] == ord("\r") else hint.start()


def _line_at(block: bytes, at: int) -> tuple[int, int]:
    """Return where the line around a place begins and ends, as far as it is looked at."""
    floor = max(0, at - MAX_LINE_BYTES)
    begin = max(block.rfind(b"\n", floor, at), block.rfind(b"\r", floor, at), floor - 1) + 1
    found = _BREAK.search(block, at, at + MAX_LINE_BYTES)
    return begin, found.start() if found else min(len(block), at + MAX_LINE_BYTES)


class Bar(NamedTuple):
    """A progress bar without a title, as HF Trainer's is."""

    position: int
    length: int
    steps_per_s: float | None


def bars(block: bytes) -> list[Bar]:
    """Return the bars in a block of whole lines, in order. A block without one costs no more than the search for it."""
    found = []
    for sign in list(_BAR_SIGN.finditer(block))[-MOST_BARS:]:
        floor = max(0, sign.start() - MAX_LINE_BYTES)
        begin = max(block.rfind(b"\n", floor, sign.start()), block.rfind(b"\r", floor, sign.start()), floor - 1) + 1
        end = _BREAK.search(block, sign.end(), sign.end() + MAX_LINE_BYTES)
        bar = untitled_bar(block[begin : end.start() if end else sign.end() + MAX_LINE_BYTES])
        if bar is not None:
            found.append(bar)
    return found


class TrainerLines:
    """The lines of one stream, in order: Keras tells the epoch on a line of its own."""

    def __init__(self) -> None:
        self._epoch: int | None = None

    def read(self, line: bytes) -> dict[str, float] | None:
        """Return the numbers of a line under the names of `DTTUI_METRICS`; `None` where it reports no training.

        What is not finite stays so. Beyond the known names there are those of the trainer itself, as `eval_loss`.
        """
        text = _plain(line)
        epoch = _EPOCH.match(text)
        if epoch:
            self._epoch = int(epoch[1])
        if ("{'" in text or '{"' in text) and "}" in text:
            return _of_dictionary(text)
        bar = _bar(text) or _ENDLESS_BAR.search(text)
        if bar:
            return _of_bar(text[: bar.start()], bar[2], bar[3], text[bar.end() :])
        keras = _KERAS.match(text)
        if keras and "loss: " in text and "/step" in text:
            found = _pairs(text.partition("/step")[2])
            if self._epoch is not None:
                found["step"] = max(0, self._epoch - 1) * int(keras[2]) + int(keras[1])
            return found
        return _of_free_form(text)


def untitled_bar(line: bytes) -> Bar | None:
    """Return the progress bar of a line if it has no title; `None` for other lines."""
    text = _plain(line)
    found = _bar(text)
    if not found or text[: found.start()].strip():
        return None
    return Bar(int(found[2]), int(found[3]), _steps_per_s(text[found.end() :]))


def _steps_per_s(text: str) -> float | None:
    """Return the steps a second of a bar's `[00:01<00:18,  3.00it/s]`, or `1.50s/it` where they take longer."""
    found = _STEP_RATE.search(text)
    value = float(found[1]) if found else 0.0
    if not found or not value:
        return None
    return round(1 / value, 4) if found[2] else value


def _plain(line: bytes) -> str:
    return _PREFIX.sub("", _ANSI.sub("", line[:MAX_LINE_BYTES].decode(errors="replace").replace("\b", "")))


def _bar(text: str) -> re.Match[str] | None:
    sign = text.find("%|")
    return _BAR.search(text, max(0, sign - 3)) if sign > 0 else None


def _of_dictionary(text: str) -> dict[str, float] | None:
    """HF Trainer and those built on it: `{'loss': '10.1', 'grad_norm': '4.718', 'epoch': '0.25'}`."""
    found: dict[str, float] = {}
    for name, value in _DICT_ITEM.findall(text)[:MAX_NUMBERS]:
        key, number = _key(name), _number(value)
        if key not in _STEPS:
            # `train_loss` is the mean over the whole training, told at its end.
            found[key if key.startswith(("train_", "eval_")) else _NAMES.get(key, key)] = number
        elif math.isfinite(number):
            found["step"] = int(number)
    return found if any(key.endswith("loss") for key in found) else None


def _of_bar(title: str, position: str, length: str, postfix: str) -> dict[str, float] | None:
    """tqdm, thus Lightning: `Epoch 0: 100%|███| 8/8 [00:00<00:00, 419.25it/s, train_loss=1.090]`."""
    found = _pairs(postfix)
    if "loss" not in found or not int(position):
        return None  # A bar at its beginning has the numbers of the epoch before.
    epoch = _EPOCH.match(title)
    # Lightning counts epochs from nought; where the bar says of how many, it is a person who counts, from one.
    done = max(0, int(epoch[1]) - bool(epoch[2])) if epoch and length.strip() else 0
    step = done * int(length.strip() or 0) + int(position)
    pace = _steps_per_s(postfix)
    return {**found, "step": step, **({} if pace is None else {"steps_per_s": pace})}


def _of_free_form(text: str) -> dict[str, float] | None:
    """Megatron-LM, DeepSpeed, torchtitan, nanoGPT, and whatever names a step and a loss in one line."""
    found = _pairs(text)
    step_ms, batch, nans = (found.pop(name, None) for name in ("_step_ms", "_batch", "_nans"))
    if "step" not in found or len(found) == 1:
        return None
    if step_ms and batch:
        found.setdefault("samples_per_s", batch / step_ms * 1000)
    if nans and "loss" not in found:
        # Megatron-LM leaves out a loss that is no number, and counts it.
        found["loss"] = math.nan
    if "tokens_per_s" in found and "memory_gib" in found and "tflops_per_gpu" in found:
        # torchtitan's tps is that of one device.
        found[PER_GPU] = found.pop("tokens_per_s")
    return found


def _pairs(text: str) -> dict[str, float]:
    """Return the numbers of a text that have a known name before them, or are a speed.

    Between name and number there are `:`, `=` or blanks, and perhaps a bracket; of the words before it the last count.
    """
    found: dict[str, float] = {}
    estimates: dict[str, float] = {}
    end = count = 0
    for value in _VALUE.finditer(text):
        before = text[max(end, value.start() - MAX_NAME) : value.start()]
        end, number, unit = value.end(), _number(value[1]), value[2].lower()
        speed = _SPEED.match(text, end)
        if speed:
            name = "tokens_per_s" if speed[1].lower().startswith("tok") else "samples_per_s"
            found.setdefault(name, number * _FACTORS.get(unit, 1.0))
            continue
        count += any(
            _take(key, number, unit, found, estimates, is_whole=not place) for place, key in enumerate(_keys(before))
        )
        if count == MAX_NUMBERS:
            break
    if any(_HELD_OUT.fullmatch(key) for key in found):
        # Beside one of held-out data the other is an estimate too, not that of this step.
        found.update({name: number for name, number in estimates.items() if name != "loss"})
        estimates = {name: number for name, number in estimates.items() if name == "loss"}
    for name in sorted(estimates, key=lambda name: name != "loss"):
        found.setdefault("loss", estimates[name])
    return found


def _take(
    key: str, number: float, unit: str, found: dict[str, float], estimates: dict[str, float], *, is_whole: bool
) -> bool:
    """Take a number, unless there is one of its name already; return whether the name is known.

    Args:
        key: what it may be called.
        number: the number.
        unit: what is written behind it.
        found: takes it.
        estimates: takes a loss, of which a line may have several.
        is_whole: whether the key is all that stands before the number.
    """
    if (key in _STEPS or (key == _WHOLE_STEP and is_whole)) and math.isfinite(number):
        found.setdefault("step", int(number))
    elif key in _LOSSES:
        estimates.setdefault(key, number)
    elif _HELD_OUT.fullmatch(key):
        found.setdefault(key, number)
    elif key not in _NAMES:
        return False
    elif key != "mfu" or number >= 0:  # nanoGPT has no mfu yet for its first steps, and prints -100%.
        found.setdefault(_NAMES[key] + {"%": "_percent", "gib": "_gib"}.get(unit, ""), number)
    return True


def _keys(before: str) -> Iterator[str]:
    """Yield what a number may be called: the words before it, then without the first of them, and so on."""
    text = before.rstrip(" \t[")
    text = text.rstrip(":=#") if text != before or text.endswith((":", "=", "#")) else ""
    text = text.rstrip()
    if text.endswith(")"):
        text = text.rpartition("(")[0].rstrip()
    name = _NAME.search(text)
    words = name[0].split(" ") if name else []
    for first in range(len(words)):
        yield _key(" ".join(words[first:]))


def _key(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except (ValueError, OverflowError):
        return math.nan
