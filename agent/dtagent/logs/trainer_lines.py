"""Reads training metrics out of the lines that trainers print. Pure: bytes to numbers; no line makes it raise.

The shapes come from the trainers' sources and real output, of which tests/agent/trainer_output and tests/material/logs
have samples. A line is read by the first of these that knows it: a dictionary, a row of a box or a table, a bar, Keras'
line, and the names before its numbers.
"""

from __future__ import annotations

import math
import re
from dataclasses import astuple
from typing import Any

from dtagent.logs.trainer_bars import TitledBar, steps_per_s, titled_bar
from dtagent.logs.trainer_names import ALL_OVER, WHOLE_STEP, Meaning, key_of, meaning_of
from dtagent.logs.trainer_numbers import MAX_NUMBERS, NUMBER, Numbers, numbers_of, to_number
from dtagent.logs.trainer_places import LinePlace, StepCount, heading_of, place_of
from dtagent.logs.trainer_search import MAX_LINE_BYTES
from dtagent.logs.trainer_tables import TableColumns, TableRow, box_row, columns_of

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIX = re.compile(r"^(?:\[default\d+\]:|\[\d+(?:,\d+)?\](?:<\w+>)?:|\[rank\d+\]:|\d{1,6}: (?=[{\[]))\s?")
"""What torchrun, horovodrun, torch's logging and srun put before a line."""
_WRAPPED = re.compile(r"\b(?:tensor|np\.float\d\d|Array|DeviceArray)\((?=[-+\d.ni])")
_LOG_PREFIX = re.compile(r"^[^|:]{0,24}\d\d:\d\d:\d\d.{0,80}[|:\]>-] +(?=train|loss)", re.IGNORECASE)
"""When and by whom a line was logged."""
_DICT_ITEM = re.compile(
    rf"['\"]([\w ./@()-]{{1,64}})['\"]:\s*['\"]?({NUMBER})(?:/(\d{{1,12}}))?['\"]?(?=\s*[,}}])", re.IGNORECASE
)
_KEYED = re.compile(r"['\"]:\s")
_KERAS = re.compile(r"\s*(\d{1,12})/(\d{1,12}) ")
_EPOCH = re.compile(r"\s*epoch:?\s+(\d{1,9})(?:/(\d{1,9}))?", re.IGNORECASE)
_TITLE_EPOCH = re.compile(r"\bepoch(:?)\s+\[?(\d{1,9})(/\d{1,9})?", re.IGNORECASE)
_ONLY_LOSS = re.compile(
    rf"\s{{0,2}}(?:\[\d{{1,6}}\] )?(?:train(?:ing)?[ _])?loss ?[:=] ?{NUMBER}(?!\s*[-+*/^.\w(])", re.IGNORECASE
)
_IS_SETTING = re.compile(
    r"Namespace\(|Arguments\(|Config\(| --\w|\b(?:args|arguments|config|hparams)\b\S{0,2}[:=]", re.IGNORECASE
)
"""A line of settings, which are no metrics."""
ITERATION = "iteration"
"""Megatron-LM's name for a step, which it counts over the whole training."""
SPEEDS = ("steps_per_s", "samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu")
"""What tells of how fast it goes."""
_TOLD = {"loss", "learning_rate", *SPEEDS}
"""What a line without a step may tell of the one that a heading has named."""


class TrainerLines:
    """The lines of one stream, in order: some tell of what those before them begin.

    Args:
        state: what `state` was of one that has read the stream so far.
    """

    def __init__(self, state: object = None) -> None:
        counted = state if isinstance(state, list) and len(state) == 3 else [None, None, None]
        self._epoch: int | None = counted[0] if isinstance(counted[0], int) else None
        """Keras', on a line of its own."""
        self._count, self._bar_count = StepCount.of(counted[1]), StepCount.of(counted[2])
        self._heading: LinePlace | None = None
        self._columns: TableColumns | None = None
        self._is_in_block = False
        self._box: dict[str, float] = {}
        self._last_step: int | None = None
        self._has_steps = self._count != StepCount()
        """Whether a line has told of steps within an epoch: an epoch by itself is then no step."""
        self._alone: int | None = None
        """The number in brackets before a loss, of the line before; once it stays, it is a rank's."""
        self._alone_is_rank = False
        self._tells_epochs = False
        """Whether any line has spoken of epochs."""
        self._epoch_steps: int | None = None
        """How many steps an epoch has, where the line says it."""
        self.is_in_samples = False
        """Whether what counts as a step is a sample."""

    @property
    def state(self) -> list[Any] | None:
        """What another one has to know to count on, as JSON; `None` where that is nothing."""
        if self._epoch is None and self._count == self._bar_count == StepCount():
            return None
        return [self._epoch, list(astuple(self._count)), list(astuple(self._bar_count))]

    @property
    def in_table(self) -> bool:
        """Whether rows of a table may follow, which have nothing else to know them by."""
        return self._columns is not None or self._is_in_block

    def read(self, line: bytes) -> dict[str, float] | None:
        """Return the numbers of a line under the names of `DTTUI_METRICS`; `None` where it reports no training.

        What is not finite stays so. Beyond the known names there are those of the trainer itself, as `eval_loss`.
        """
        text = plain(line)
        self._tells_epochs = self._tells_epochs or "poch" in text
        epoch = _EPOCH.match(text)
        if epoch:
            self._epoch = int(epoch[1])
        self._epoch_steps = None
        found = self._read(text)
        if found is not None and "step" in found:
            self._last_step = int(found["step"])
            if self._epoch_steps is not None:
                found["epoch_steps"] = self._epoch_steps
        return found

    def _read(self, text: str) -> dict[str, float] | None:
        if ("{'" in text or '{"' in text) and "}" in text:
            found = _of_dictionary(text)
            if found is not None or text.lstrip().startswith("{"):
                return found
        bar = titled_bar(text)
        if bar:
            return self._of_bar(bar)
        if text.lstrip()[:1] in ("|", "\u2502", "\u2503"):
            boxed = box_row(text)
            if boxed is not None:
                return self._of_box(*boxed)
        if self._columns is not None:
            row = self._columns.row(text)
            if row is not None:
                return self._of_row(row)
            self._columns = None if self._columns.is_over else self._columns
        if "oss" in text or "OSS" in text:
            columns = columns_of(text)
            # A live table draws its header again.
            if columns is not None and (self._columns is None or columns.header != self._columns.header):
                self._columns = columns
        keras = _KERAS.match(text)
        if keras and "loss: " in text and "/step" in text:
            return self._of_keras(text, int(keras[1]), int(keras[2]))
        return self._of_free_form(text)

    def _of_keras(self, text: str, position: int, length: int) -> dict[str, float]:
        numbers = numbers_of(text.partition("/step")[2])
        found = _told(numbers)
        if self._epoch is not None:
            found["step"], self._epoch_steps = max(0, self._epoch - 1) * length + position, length
        return found

    def _of_bar(self, bar: TitledBar) -> dict[str, float] | None:
        """tqdm, thus Lightning: `Epoch 0: 100%|███| 8/8 [00:00<00:00, 419.25it/s, train_loss=1.090]`."""
        # A bar at its beginning has the numbers of the epoch before.
        if bar.is_of_others or (not bar.position and self._has_steps):
            return self._of_free_form(bar.glued)
        numbers = numbers_of(bar.postfix.partition("]")[0])
        numbers.metrics.pop("_bare_per_s", None)
        found = _told(numbers)
        row = self._columns.row(bar.title) if self._columns is not None else None
        if row is not None:
            found = {**found, **row.numbers}
        elif "loss" not in found:
            titled = numbers_of(bar.title).loss()
            found.update({} if titled is None else {"loss": titled})
        is_outer = bar.is_of_epochs and self._has_steps
        if "loss" not in found and (not bar.is_of_training or is_outer or not bar.position):
            return self._of_free_form(bar.glued)
        epoch = _TITLE_EPOCH.search(bar.title)
        number = row.epoch if row is not None else int(epoch[2]) if epoch else None
        if row is None and epoch and number is not None and not epoch[1] and not epoch[3]:
            number += 1  # Lightning counts epochs from nought; where there is a colon or their number, a person does.
        found["step"] = self._counted(self._bar_count, number, bar.position, bar.length)
        pace = steps_per_s(bar.postfix)
        self._has_steps = True
        return {**found, **({} if pace is None else {"steps_per_s": pace})}

    def _of_box(self, name: str, value: float | None) -> dict[str, float] | None:
        """A box of Stable-Baselines3: the step comes before the loss."""
        meaning = meaning_of(name)
        if value is None or meaning is None:
            return None
        if meaning.step == ALL_OVER and math.isfinite(value):
            self._box["step"] = int(value)
            self._has_steps = True
        elif meaning.metric in SPEEDS or meaning.metric == "learning_rate":
            self._box[meaning.metric] = value
        elif meaning.loss == 0 and "step" in self._box:
            found, self._box = {**self._box, "loss": value}, {}
            return found
        return None

    def _of_row(self, row: TableRow) -> dict[str, float]:
        numbers = Numbers(metrics=dict(row.numbers))
        numbers.settle()
        found = numbers.metrics
        if row.epoch is not None:
            found["epoch"] = row.epoch
        step = row.step if row.step is not None else row.epoch
        return {**found, **({} if step is None else {"step": step})}

    def _of_free_form(self, text: str) -> dict[str, float] | None:
        """Megatron-LM, DeepSpeed, torchtitan, nanoGPT, and whatever names a step and a loss in one line."""
        heading = heading_of(text)
        if heading is not None:
            self._heading, self._is_in_block = heading, heading.is_block
            self._has_steps = self._has_steps or heading.position is not None
        elif not text.startswith((" ", "\t")):
            self._is_in_block = False
        if _IS_SETTING.search(text):
            return None
        numbers = numbers_of(text)
        place = place_of(text)
        if numbers.held_out and not numbers.losses and not numbers.parts:
            return self._of_held_out(numbers)
        found = _told(numbers)
        if place is not None and place.position is None and place.epoch is not None:
            found.setdefault("epoch", place.epoch)
        step = self._step(numbers, place)
        if step is not None:
            found["step"] = step
            is_all_over = numbers.step_rank == ALL_OVER
            total = {"total_steps": numbers.step_of} if numbers.step_of and self._counts_all(numbers) else {}
            if is_all_over and numbers.others:
                return found | total
            if found.keys() <= {"step", "epoch", "learning_rate"} and "lr=[" not in text:
                return None  # DeepSpeed's line has no more; settings of a scheduler neither.
            return found | total if len(found) > (1 + ("epoch" in found)) else None
        if heading is not None or not (found.keys() - {"epoch"}):
            return None
        return self._without_step(text, found) if _TOLD & found.keys() else None

    def _counts_all(self, numbers: Numbers) -> bool:
        """Whether what stands behind a step counts those of the whole training, and not of one epoch."""
        return numbers.step_rank == ALL_OVER or (numbers.step_name == ITERATION and not self._tells_epochs)

    def _of_held_out(self, numbers: Numbers) -> dict[str, float]:
        """A loss of held-out data: of the step that was the last, or of none."""
        known = {**numbers.held_out}
        step = numbers.step if numbers.step_rank > 1 else None
        if numbers.step is None and not self._has_steps and self._heading is not None:
            step = self._heading.epoch
        if step is not None and step == self._last_step:
            known["step"] = step
        return known

    def _step(self, numbers: Numbers, place: LinePlace | None) -> int | None:
        """Return the step that a line names, over all epochs."""
        epoch = numbers.metrics.get("epoch")
        whole = int(epoch) if epoch is not None and math.isfinite(epoch) and epoch == int(epoch) else None
        has_loss = numbers.loss() is not None or bool(numbers.parts)
        if numbers.step is not None and numbers.step_rank == ALL_OVER:
            self._has_steps = True
            return numbers.step
        if place is not None and place.position is not None and place.epoch is None and numbers.step is None:
            return self._placed(place, place.position) if has_loss else None
        if place is not None and place.position is not None and numbers.step is None:
            self._has_steps = self._has_steps or has_loss
            self.is_in_samples = place.is_in_samples
            return self._counted(self._count, place.epoch, place.position, place.length) if has_loss else None
        if numbers.step is None:
            return None
        if not has_loss and (numbers.step_rank < 2 or numbers.step_name == WHOLE_STEP):
            return None
        self._has_steps = True
        if whole is None:
            is_anew = numbers.step_rank < 2 and numbers.step_of is not None
            return self._count.step(None, numbers.step, numbers.step_of) if is_anew else numbers.step
        return self._counted(self._count, whole, numbers.step, numbers.step_of, is_exact=numbers.step_rank < 2)

    def _counted(
        self, count: StepCount, epoch: int | None, position: int, length: int | None, *, is_exact: bool = True
    ) -> int:
        """Return the step of a position within an epoch, and note how many steps that has."""
        step = count.step(epoch, position, length, is_exact=is_exact)
        # Of a first epoch, what looks like its length may be that of all.
        if epoch is not None and not count.goes_on and (is_exact or epoch != count.first_epoch):
            self._epoch_steps = length
        return step

    def _placed(self, place: LinePlace, position: int) -> int | None:
        """Return the step of a line that has it in brackets alone: before the loss it may also be a rank."""
        if place.is_in_samples:
            self.is_in_samples = self._has_steps = True
            epoch = self._heading.epoch if self._heading is not None else None
            return self._counted(self._count, epoch, position, place.length)
        if place.length is None:
            self._alone_is_rank = self._alone_is_rank or position == self._alone
            self._alone = position
            if self._alone_is_rank:
                self._has_steps = False
                return None
        self._has_steps = True
        return self._count.step(None, position, place.length)

    def _without_step(self, text: str, found: dict[str, float]) -> dict[str, float] | None:
        """Return the report of a line that names no step: that of the heading above it, or its epoch, or none."""
        if self._heading is not None and self._heading.position is not None:
            place = self._heading
            found["step"] = self._counted(self._count, place.epoch, int(place.position or 0), place.length)
            return found
        if self._has_steps:
            if "loss" in found or "epoch" in found or self._last_step is None:
                return None
            found["step"] = self._last_step
            return found
        epoch = found.get("epoch")
        if epoch is None and self._heading is not None:
            epoch = self._heading.epoch
        if epoch is not None and math.isfinite(epoch) and epoch == int(epoch):
            found["step"] = int(epoch)
            return found if "loss" in found or found["step"] == self._last_step else None
        return found if "loss" in found and _ONLY_LOSS.match(_LOG_PREFIX.sub("", text)) else None


def plain(line: bytes) -> str:
    """Return a line as text, as far as it is looked at, without colours, prefixes and what wraps a number."""
    text = line[:MAX_LINE_BYTES].decode(errors="replace")
    if "\x1b" in text or "\b" in text:
        text = _ANSI.sub("", text.replace("\b", ""))
    if "(" in text:
        text = _WRAPPED.sub("", text)
    return _PREFIX.sub("", text)


def _told(numbers: Numbers) -> dict[str, float]:
    """Return what a line says under the names of a report, without its step."""
    epoch_s = numbers.metrics.pop("_epoch_s", None)
    numbers.settle()
    loss = numbers.loss()
    found = dict(numbers.metrics)
    if numbers.held_out:
        # Beside one of held-out data the other may be an estimate: one of the step itself takes its place.
        found.update({name: number for name, number in numbers.losses.items() if name != "loss"})
        found.update(numbers.held_out)
    if loss is not None:
        found["loss"] = loss
    elif not numbers.held_out:
        found.update(numbers.parts)
    if epoch_s:
        found.setdefault("steps_per_s", float(f"{1 / epoch_s:.5g}"))
    if "tokens_per_s" in found and "memory_gib" in found and ("tflops_per_gpu" in found or "mfu_percent" in found):
        # torchtitan's tps is that of one device.
        found["tokens_per_s_per_gpu"] = found.pop("tokens_per_s")
    return found


def _of_dictionary(text: str) -> dict[str, float] | None:
    """HF Trainer and those built on it: `{'loss': '10.1', 'grad_norm': '4.718', 'epoch': '0.25'}`."""
    items = _DICT_ITEM.findall(text)[:MAX_NUMBERS]
    if 2 * len(items) < len(_KEYED.findall(text)):
        return None  # Settings, most of which are no numbers.
    found: dict[str, float] = {}
    rank = 0
    for name, value, whole in items:
        key, number = key_of(name), to_number(value)
        meaning = meaning_of(key) or meaning_of(key.partition("/")[0] if "step" in key else key) or Meaning()
        if meaning.step:
            if meaning.step > rank and math.isfinite(number) and number == int(number):
                found["step"], rank = int(number), meaning.step
                if whole and rank == ALL_OVER:
                    found["total_steps"] = int(whole)
        # `train_loss` is the mean over the whole training, told at its end.
        elif key.startswith(("train_", "eval_")):
            found[key] = number
        elif key == "train/loss":
            found.setdefault("loss", number)
        elif meaning.metric is not None and not meaning.metric.startswith("_"):
            found.setdefault(meaning.metric, number)
        else:
            found[key] = number
    if not any(key.endswith("loss") and not key.startswith("best_") for key in found):
        return None
    if "step" not in found:
        before = numbers_of(text[: text.find("{")])
        if before.step is not None:
            found["step"] = before.step
    return found
