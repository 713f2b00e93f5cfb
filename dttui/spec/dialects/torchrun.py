"""A command line of torchrun, as a job."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.torchrun_options import SECRET, Argument, TorchrunCommand, parse_command
from dttui.spec.dialects.translation import Translated, Translation, table_source
from dttui.spec.problems import DocumentError, PathKey, Problem, printable, shown
from dttui.spec.yaml_source import Mark, YamlSource

PROGRAM = "program"
"""What places call the script, module or program."""

_NODES = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")
_ALL_DEVICES = ("gpu", "auto")


def translate_command(words: Sequence[str], name: str) -> Translated:
    """Carry a command line over; `name` is what problems call it. Raises DocumentError with every problem of it."""
    command = parse_command(words, name)
    translation = Translation(_source(command, name))
    problems = [*_carry_nodes(translation, command), *_carry_processes(translation, command)]
    if problems:
        raise DocumentError(problems)
    _carry_program(translation, command)
    _carry_environment(translation, command)
    _note_rendezvous(translation)
    return translation.finish()


def _source(command: TorchrunCommand, name: str) -> YamlSource:
    """Return a command line as a document: of option to its value."""

    def mark(word: Argument) -> Mark:
        return Mark(1, command.columns[word.index])

    entries: list[tuple[str, Mark, Any, Mark]] = [
        (f"{key}=", mark(word), word.text, mark(word)) for key, word in command.environment
    ]
    entries += [
        (option, mark(word), True if word is value else value.text, mark(value))
        for option, (word, value) in command.options.items()
    ]
    program = command.program
    entries.append((PROGRAM, mark(program), program.text, mark(program)))
    return table_source(name, (printable(command.line),), entries)


def _carry_program(translation: Translation, command: TorchrunCommand) -> None:
    origin: PathKey = (PROGRAM,)
    text = command.program.text
    arguments = tuple(word.text for word in command.arguments)
    is_module, is_program = "--module" in command.options, "--no-python" in command.options
    translation.use(("--module",), ("--no-python",), ("--use-env",), origin)
    if is_program:
        translation.put(("framework",), "command", origin)
        translation.put(("run", "command"), (text, *arguments), origin)
    else:
        translation.put(("framework",), "pytorch-ddp", origin, is_implied=True)
        translation.carry(origin, ("run", "module" if is_module else "script"))
        if arguments:
            translation.put(("run", "args"), arguments, origin)
    stem = text.rpartition(".")[2] if is_module else posixpath.splitext(posixpath.basename(text))[0]
    translation.put(("name",), printable(stem)[:120].strip() or "job", origin, is_implied=True)
    if command.python is not None and posixpath.isabs(command.python.text):
        translation.put(("run", "python"), command.python.text, origin)


def _carry_environment(translation: Translation, command: TorchrunCommand) -> None:
    """Values that may be secret are named alone: they come from dttui's own environment at the start."""
    secrets: list[str] = []
    for key, _word in command.environment:
        if SECRET.fullmatch(key):
            secrets.append(key)
            message = _("carried over as a name under run.secrets, without its value")
            translation.note((f"{key}=",), message, _("Export it before starting dttui."), is_warning=True)
        else:
            translation.carry((f"{key}=",), ("run", "env", key))
    if secrets:
        translation.put(("run", "secrets"), tuple(secrets), (f"{secrets[0]}=",))


def _carry_nodes(translation: Translation, command: TorchrunCommand) -> list[Problem]:
    origin: PathKey = ("--nnodes",)
    said = translation.said(origin)
    translation.use(origin, ("--standalone",), ("--node-rank",))
    match = _NODES.fullmatch(said or "1")
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most:
        message = _("expected a number of nodes, N or MIN:MAX, found {value}").format(value=shown(said))
        return [_problem(translation.source, origin, message)]
    if most > 1:
        translation.expect_nodes(origin, least, most)
    # Only of frameworks that torchrun starts: a command is started once a GPU, by dttui.
    section = ("framework_options", "elastic") if "--no-python" not in command.options else ("recovery",)
    if least < most:
        translation.put((*section, "min_nodes"), least, origin)
    address, endpoint = translation.said(("--master-addr",)), translation.said(("--rdzv-endpoint",))
    translation.use(("--master-addr",), ("--rdzv-endpoint",))
    if most == 1:
        pass  # The one node is the master.
    elif address is not None:
        translation.expect_master(("--master-addr",), address)
    elif endpoint is not None and "--standalone" not in command.options:
        host = re.sub(r":[0-9]+$", "", endpoint)
        translation.expect_master(("--rdzv-endpoint",), host)
    restarts = translation.said(("--max-restarts",))
    if restarts is not None and not re.fullmatch(r"[0-9]{1,6}", restarts):
        message = _("expected a whole number, found {value}").format(value=shown(restarts))
        return [_problem(translation.source, ("--max-restarts",), message)]
    if restarts is not None:
        if least == most or int(restarts) == 0:  # Of a job that is not elastic dttui starts the ranks again.
            section = ("recovery",)
        translation.carry(("--max-restarts",), (*section, "max_restarts"), int(restarts))
    return []


def _carry_processes(translation: Translation, command: TorchrunCommand) -> list[Problem]:
    origin: PathKey = ("--nproc-per-node",)
    said = translation.said(origin)
    target = ("resources", "gpu", "count")
    translation.use(origin)
    if said is None:
        translation.put(target, 1, (PROGRAM,), is_implied=True)  # torchrun's own default
    elif re.fullmatch(r"[0-9]{1,4}", said) and 1 <= int(said) <= 1024:
        translation.carry(origin, target, int(said))
    elif said == "cpu":
        translation.carry(origin, target, 0)
        translation.note(origin, _("carried over as one process a node: dttui starts none a CPU"), is_warning=True)
    elif said not in _ALL_DEVICES:
        message = _("expected a number of processes, gpu, auto or cpu, found {value}").format(value=shown(said))
        return [_problem(translation.source, origin, message)]
    return []


def _note_rendezvous(translation: Translation) -> None:
    for option in ("--rdzv-backend", "--rdzv-id", "--rdzv-conf"):
        translation.note(
            (option,), _("not carried over: dttui gives every node its rank, and needs no rendezvous of it")
        )
    message = _("not carried over: the port is chosen at the start, from the master's port_range")
    translation.note(("--master-port",), message)
    for option in ("--log-dir", "--redirects", "--tee", "--local-ranks-filter", "--logs-specs"):
        translation.note((option,), _("not carried over: dttui keeps the output of every rank in the job's directory"))
    for option in translation.source.data:
        if option.startswith("--") and not translation.is_used((option,)):
            translation.note((option,), _("not carried over: dttui sets torchrun's own options"))


def _problem(source: YamlSource, origin: PathKey, message: str) -> Problem:
    return source.problem(origin, source.mark(origin), message)
