"""The options of torchrun, and a command line of it taken apart. Runs nothing and knows no job."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dttui.i18n import _
from dttui.spec.problems import DocumentError, Problem, did_you_mean, printable, shown
from dttui.spec.text import ENV_NAME

FLAGS = ("--standalone", "--module", "--no-python", "--run-path", "--virtual-local-rank", "--use-env")
"""Options without a value; `--use-env` is of the older torch.distributed.launch."""
VALUED = (
    "--nnodes",
    "--nproc-per-node",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--max-restarts",
    "--monitor-interval",
    "--start-method",
    "--event-log-handler",
    "--role",
    "--log-dir",
    "--redirects",
    "--tee",
    "--local-ranks-filter",
    "--duplicate-stdout-filters",
    "--duplicate-stderr-filters",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
    "--logs-specs",
    "--numa-binding",
    "--signals-to-handle",
    "--shutdown-timeout",
)
"""Options with a value (torch 2.13, torch/distributed/run.py)."""
SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}

SECRET = re.compile(r"[A-Za-z0-9_]*(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL)[A-Za-z0-9_]*", re.IGNORECASE)
"""Names of variables whose values are shown and written nowhere."""

_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_PYTHON = re.compile(r"python[0-9.]*")
_DEFAULT_NAME = "torchrun"


@dataclass(frozen=True)
class Argument:
    """A word of the command line."""

    text: str
    index: int
    """Which, from 0."""


@dataclass(frozen=True)
class TorchrunCommand:
    """A command line of torchrun, taken apart."""

    line: str
    """The command as one line, as a shell takes it; without the values of what may be a secret."""
    columns: tuple[int, ...]
    """Where each word begins in it, from 1."""
    environment: tuple[tuple[str, Argument], ...]
    """`NAME=VALUE` before the command."""
    python: Argument | None
    """Interpreter, where it is named."""
    options: dict[str, tuple[Argument, Argument]]
    """By the option's long spelling with dashes: the word it stands in, and the word of its value."""
    program: Argument
    """Script, module or program."""
    arguments: tuple[Argument, ...]
    """What it is given."""


def parse_command(words: Sequence[str], name: str) -> TorchrunCommand:
    """Take a command line apart; `name` is what problems call it. Raises DocumentError with the place of a mistake."""
    return _Parser(words, name).parse()


class _Parser:
    def __init__(self, words: Sequence[str], name: str) -> None:
        self._name = name
        self._words = [Argument(text, index) for index, text in enumerate(words)]
        quoted = [shlex.quote(_masked(text)) for text in words]
        self._line = " ".join(quoted)
        columns, column = [], 1
        for text in quoted:
            columns.append(column)
            column += len(text) + 1
        self._columns = (*columns, column)
        self._at = 0

    def parse(self) -> TorchrunCommand:
        environment = tuple(self._environment())
        python = self._launcher()
        options = dict(self._options())
        if self._at == len(self._words):
            hint = _("It comes after torchrun's own options, and its arguments after it.")
            raise self._fault(self._at, _("there is no script"), hint)
        program = self._words[self._at]
        rest = tuple(self._words[self._at + 1 :])
        return TorchrunCommand(self._line, self._columns, environment, python, options, program, rest)

    def _environment(self) -> Iterator[tuple[str, Argument]]:
        if self._at < len(self._words) and self._words[self._at].text == "env":
            self._at += 1
        while self._at < len(self._words):
            word = self._words[self._at]
            key, separator, value = word.text.partition("=")
            if not separator or not re.fullmatch(ENV_NAME, key):
                return
            yield key, Argument(value, word.index)
            self._at += 1

    def _launcher(self) -> Argument | None:
        """Pass `torchrun`, or `python -m torch.distributed.run`, and return the interpreter of the latter."""
        rest = [word.text for word in self._words[self._at :]]
        program = posixpath.basename(rest[0]) if rest else ""
        if program == _DEFAULT_NAME:
            self._at += 1
            return None
        if _PYTHON.fullmatch(program):
            start = 2 if rest[1:2] == ["-u"] else 1
            after = rest[start : start + 2]
            if len(after) == 2 and after[0] == "-m" and after[1] in _MODULES:
                word = self._words[self._at]
                self._at += start + 2
                return word
        message = _("expected torchrun, found {value}").format(value=shown(rest[0]) if rest else _("nothing"))
        hint = _hints().get(program, "dttui import -- torchrun --nproc-per-node 8 train.py")
        raise self._fault(self._at, message, hint)

    def _options(self) -> Iterator[tuple[str, tuple[Argument, Argument]]]:
        while self._at < len(self._words):
            word = self._words[self._at]
            if not word.text.startswith("-") or word.text == "-":
                return
            self._at += 1
            if word.text == "--":
                return
            spelt, separator, value = word.text.partition("=")
            if spelt[:2] in SHORT and not spelt.startswith("--") and len(word.text) > 2:
                spelt, separator, value = word.text[:2], "=", word.text[2:].removeprefix("=")
            option = self._option(spelt, word)
            if option in FLAGS:
                if separator:
                    raise self._fault(word.index, _("{option} takes no value").format(option=option))
                yield option, (word, word)
            elif separator:
                yield option, (word, Argument(value, word.index))
            elif self._at == len(self._words):
                raise self._fault(word.index, _("{option} lacks its value").format(option=option))
            else:
                yield option, (word, self._words[self._at])
                self._at += 1

    def _option(self, spelt: str, word: Argument) -> str:
        """Return the long spelling of an option; torchrun takes either dash, and what can only be one of them."""
        known = (*FLAGS, *VALUED)
        dashed = "--" + spelt[2:].replace("_", "-") if spelt.startswith("--") else SHORT.get(spelt, "")
        if dashed in known:
            return dashed
        meant = [option for option in known if dashed and option.startswith(dashed)]
        if len(meant) == 1:
            return meant[0]
        message = _("torchrun has no option {option}").format(option=printable(spelt))
        near = did_you_mean(spelt, known)
        raise self._fault(word.index, message, near or _("The script's own options come after the script."))

    def _fault(self, index: int, message: str, hint: str = "") -> DocumentError:
        column = self._columns[min(index, len(self._columns) - 1)]
        return DocumentError([Problem(self._name, message, hint, (), 1, column, printable(self._line))])


def _hints() -> dict[str, str]:
    """Return how to write the commands of other launchers, by program."""
    return {
        "accelerate": _(
            "Import its configuration with the script: dttui import default_config.yaml -- torchrun train.py. "
            "Of its options, --num_machines is --nnodes, and --num_processes / --num_machines is --nproc-per-node."
        ),
        "deepspeed": _(
            "Import its hostfile and configuration with the script: "
            "dttui import HOSTFILE DS_CONFIG -- torchrun train.py. "
            "Of its options, --num_nodes is --nnodes, and --num_gpus is --nproc-per-node."
        ),
    }


def _masked(text: str) -> str:
    name, separator, value = text.partition("=")
    return f"{name}=***" if separator and value and SECRET.fullmatch(name) else text
