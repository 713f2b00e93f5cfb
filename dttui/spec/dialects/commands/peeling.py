"""A command line taken apart: wrappers, schedulers and launchers, one after another, down to the program."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Protocol

from dttui.i18n import _
from dttui.spec.dialects.commands.launch import Launch, ProgramKind
from dttui.spec.dialects.commands.launcher_options import OptionError, Options, names
from dttui.spec.dialects.commands.schedulers import horovodrun, mpirun, srun
from dttui.spec.dialects.commands.trainers import is_own_script, module_launcher, own_devices, own_ranks, trainer_of
from dttui.spec.dialects.commands.wrappers import script_before_dashes, take_variables, wrapper_of
from dttui.spec.dialects.shell.command_words import ShellCommand, Word
from dttui.spec.problems import shown

Words = Sequence[Word]


class InnerScripts(Protocol):
    """Follows scripts that commands start."""

    def inner(self, text: str, command: ShellCommand, arguments: Words) -> list[ShellCommand]:
        """Return the commands of a script that is a word of a command, as after `bash -c`, with its arguments."""
        ...

    def script(self, command: ShellCommand, words: Words) -> list[ShellCommand] | None:
        """Return the commands of a script that is a file, the first of its words; `None` where it is not there."""
        ...


_SCHEDULERS = {
    "srun": srun,
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "mpirun_rsh", "aprun"), mpirun),
    "horovodrun": horovodrun,
}
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_PYTHON = re.compile(r"(python|pypy|ipexrun)[0-9.]*")
_NOT_TRAINING = names(
    """
    pip pytest http.server venv ensurepip json.tool pdb cProfile compileall ipykernel tensorboard
    vllm.entrypoints.openai.api_server sglang.launch_server build twine nltk.downloader spacy wandb
    torch.utils.collect_env torch.utils.bottleneck
    """
)
"""Modules that train nothing."""
_DEEPEST = 12


def peel(command: ShellCommand, shell: InnerScripts) -> Launch | None:
    """Return what a command starts; `None` where it is no launch.

    Args:
        command: of a script, or by itself.
        shell: follows what `bash -c` and the like are given.

    Raises:
        OptionError: an option of a launcher is wrong.
    """
    launch = Launch(command.mark, environment=dict(command.environment), directory=command.directory)
    return launch if _peel(launch, command.words, shell, 0) else None


def _peel(launch: Launch, words: Words, shell: InnerScripts, depth: int) -> bool:
    words = take_variables(launch, words)
    if not words or depth > _DEEPEST:
        return False
    name = posixpath.basename(words[0].text)
    wrapper = wrapper_of(words)
    if wrapper is not None:
        return _peel(launch, wrapper(launch, words), shell, depth + 1)
    scheduler = _SCHEDULERS.get(name)
    if scheduler is not None:
        rest = scheduler(launch, words)
        if not rest:
            raise OptionError(words[0], _("there is no program that {launcher} starts").format(launcher=name))
        return _peel(launch, rest, shell, depth + 1)
    trainer = trainer_of(words)
    if trainer is not None:
        trainer(launch, words)
        return True
    if name in _SHELLS:
        return _take_shell(launch, words, shell, depth)
    if _PYTHON.fullmatch(name):
        return _take_python(launch, words)
    if launch.launchers and name.endswith(".sh"):
        return _take_shell(launch, [Word("bash", words[0].mark), *words], shell, depth)
    if name.endswith(".py"):
        launch.run(ProgramKind.SCRIPT, words)
        return True
    if launch.launchers:  # A program of any kind, once for each rank.
        launch.is_known = False
        if launch.launcher == "mpirun":
            message = _("{program} is no program in Python: whether it trains, and needs MPI itself, is not known")
            raise OptionError(words[0], message.format(program=shown(words[0].text)))
        launch.run(ProgramKind.COMMAND, words)
        return True
    return False


def _take_shell(launch: Launch, words: Words, shell: InnerScripts, depth: int) -> bool:
    """Take `bash -c TEXT`, `bash wrapper.sh -- program`, and `bash run.sh`, which starts ranks of its own."""
    options, rest = Options("bash", frozenset({"-c", "-o"}), short={"-lc": "-c", "-ec": "-c", "-xc": "-c"}).parse(
        words[1:]
    )
    text = next((option.value for option in options if option.name == "-c"), None)
    command = ShellCommand(tuple(rest) or tuple(words), dict(launch.environment), launch.directory)
    if text is not None:
        return _take_first(launch, shell.inner(text.raw or text.text, command, rest), shell, depth)
    after = script_before_dashes(launch, words)
    if after is not None:
        return _peel(launch, after, shell, depth + 1)
    followed = shell.script(command, rest) if rest else None
    if followed is not None and _take_first(launch, followed, shell, depth):
        return True
    if rest and launch.launchers:
        own_ranks(launch, words)
        said = launch.enter("script", rest[0])
        message = _("what {script} starts is not known: it is not here, and is started once a node as it is")
        hint = _("Import it by itself: dttui import {script}.").format(script=rest[0].text)
        launch.remark(said, message.format(script=shown(rest[0].text)), hint, is_warning=True)
        return True
    return False


def _take_first(launch: Launch, commands: list[ShellCommand], shell: InnerScripts, depth: int) -> bool:
    """Take the first of commands that is a launch; return whether there is one."""
    found = next((line for line in commands if _is_launch(line, shell, depth)), None)
    if found is None:
        return False
    launch.passed.append(found)
    launch.environment |= found.environment
    launch.directory = found.directory
    return _peel(launch, found.words, shell, depth + 1)


def _is_launch(line: ShellCommand, shell: InnerScripts, depth: int) -> bool:
    trial = Launch(line.mark, environment=dict(line.environment), directory=line.directory)
    return _peel(trial, line.words, shell, depth + 1) and trial.is_known


def _take_python(launch: Launch, words: Words) -> bool:
    """Take `python script.py …`, `python -m module …` and `python -c code`."""
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "-m" and at + 1 < len(words):
            return _take_module(launch, words, at + 1)
        if text == "-c" and at + 1 < len(words):
            if not launch.launchers:
                return False
            launch.run(ProgramKind.COMMAND, words)
            return True
        if text in ("-W", "-X"):
            at += 2
        elif text.startswith("-") and text != "-":
            at += 1
        else:
            break
    if at >= len(words) or words[at].text == "-":
        return False
    launch.python = words[0]
    if is_own_script(words[at]):
        own_ranks(launch, words)
        return True
    if not launch.launchers and own_devices(launch, words, at):
        return True
    launch.run(ProgramKind.SCRIPT, words[at:])
    return True


def _take_module(launch: Launch, words: Words, at: int) -> bool:
    module = words[at].text
    launcher = module_launcher(module)
    launch.python = words[0]
    if launcher is not None:
        launcher(launch, words, at + 1)
        return True
    if module in _NOT_TRAINING:
        return False
    launch.run(ProgramKind.MODULE, words[at:])
    return True
