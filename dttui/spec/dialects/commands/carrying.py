"""A launch as a job: how many processes where, what they run, and what is still to be given."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.commands.accelerate_launch import carry_accelerate
from dttui.spec.dialects.commands.launch import PROGRAM, GivenValue, Launch, ProgramKind
from dttui.spec.dialects.commands.launcher_options import names
from dttui.spec.dialects.commands.megatron import carry_megatron, is_megatron
from dttui.spec.dialects.commands.secret_options import note_secrets
from dttui.spec.dialects.commands.visible_gpus import carry_visible
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.dialects.shell.open_parts import Openness
from dttui.spec.dialects.translation import Translated, Translation, table_source
from dttui.spec.placeholders import UNLIKE_TOKENIZERS
from dttui.spec.problems import DocumentError, PathKey, Problem, printable, shown
from dttui.spec.secret_names import is_secret
from dttui.spec.text import MODULE_NAME
from dttui.spec.yaml_source import Mark, YamlSource

_NODES = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")
_PLACEHOLDER = re.compile(
    UNLIKE_TOKENIZERS + r"<[A-Za-z][^<>|&;]{0,80}>|\{\s?[A-Za-z-][\w .-]{0,60}\s?\}|\$\{\{[^{}]{1,80}\}\}|\.\.\.|…"
)
_GIVEN = names(
    """
    RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT NODE_RANK NNODES
    NPROC_PER_NODE
    """
)
"""Variables that dttui gives every process itself."""
_OF_HOST = frozenset({"PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "HOME", "USER", "SHELL"})
_INTERNAL = names("CMD LAUNCHER SCRIPT SCRIPT_ARGS SRUN_ARGS RUN_CMD ARGS")
"""Names by which scripts keep parts of their own command, which no program reads."""
_PASSED_ON = ("$@", "$*", "${@}")
"""What a script stands for that passes on its own arguments."""
_MOST_PROCESSES = 1024
_FSDP_STAGES = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2}


def carry(
    launch: Launch, name: str, lines: Sequence[str], others: Mapping[str, Sequence[str]] | None = None
) -> Translated:
    """Return the job that a launch is.

    Args:
        launch: what is started.
        name: what problems call the document.
        lines: of it.
        others: of scripts that it starts, by their names.

    Raises:
        DocumentError: it cannot be a job, as a number is none.
    """
    translation = Translation(_source(launch, name, lines, others))
    problems = [
        *_check_program(translation, launch),
        *_carry_nodes(translation, launch),
        *_carry_processes(translation, launch),
    ]
    if problems:
        raise DocumentError(problems)
    _carry_program(translation, launch)
    _carry_environment(translation, launch)
    _carry_settings(translation, launch)
    if _is_of_one_node(launch):
        carry_visible(translation, launch)
    if launch.launcher == "accelerate launch":
        carry_accelerate(translation, launch)
    _note_ranks(translation, launch)
    for remark in launch.remarks:
        translation.note((remark.key,), remark.message, remark.hint, is_warning=remark.is_warning)
    for key in launch.said:
        translation.use((key,))
    _note_what_is_open(translation, launch)
    note_secrets(translation, launch)
    if launch.hostfile is not None and launch.hostfile.is_open:
        message = _("still to be given: {names}").format(names=launch.hostfile.text)
        translation.note((launch.hostfile.key,), message, _("It names the hosts."), is_warning=True)
    files = [launch.hostfile, launch.accelerate_file if launch.accelerate_settings is None else None]
    named = tuple((said.text, (said.key,)) for said in files if said is not None and not said.is_open)
    return replace(translation.finish(), beside=named)


def _check_program(translation: Translation, launch: Launch) -> list[Problem]:
    """Return why a program is none that could be started."""
    program = launch.program
    if program is None:
        return [_problem(translation.source, (), _("there is no script"))]
    counts = [s for s in (launch.nodes, launch.per_node, launch.processes, launch.open_hosts) if s is not None]
    count = next((said for said in counts if "<" in said.text), None)
    named = count.word if count is not None else next((word for word in launch.prefix if "<" in word.text), program)
    key: PathKey = (count.key if count is not None else PROGRAM,)
    found = _PLACEHOLDER.search(named.text)
    if found is not None and (not program.holes or "<" in named.text):
        message = _("this is a template: {text} is still to be filled in").format(text=shown(found[0]))
        return [_problem(translation.source, key, message, _("Write what is meant in its place."))]
    is_module = launch.kind is ProgramKind.MODULE and not re.fullmatch(MODULE_NAME, program.text)
    if program.holes and (is_module or program.text == program.holes[0].text):
        message = _("what is to be started is not known: {text}").format(text=shown(program.text))
        hint = _("Give arguments and NAME=VALUE after --, or import the command itself: dttui import -- COMMAND.")
        return [_problem(translation.source, (PROGRAM,), message, hint)]
    return []


def _source(launch: Launch, name: str, lines: Sequence[str], others: Mapping[str, Sequence[str]] | None) -> YamlSource:
    """Return a launch as a document: of what is said to its value."""
    entries: list[tuple[str, Mark, Any, Mark]] = []
    for key, said in launch.said.items():
        entries.append((key, said.mark or said.word.mark, said.text, said.word.mark))
    for variable, word in launch.environment.items():
        entries.append((f"{variable}=", word.mark, word.text, word.mark))
    program = launch.program
    if program is not None:
        entries.append((PROGRAM, program.mark, program.text, program.mark))
    return table_source(name, tuple(printable(line) for line in lines), entries, others)


def _carry_program(translation: Translation, launch: Launch) -> None:
    program, origin = launch.program, (PROGRAM,)
    if program is None:
        return
    translation.use(origin)
    arguments = tuple(word.text for word in launch.arguments if word.text not in _PASSED_ON)
    text = program.text
    if launch.kind is ProgramKind.COMMAND:
        text = "${PYTHON}" if program is launch.python else text
        translation.put(("framework",), "command", origin)
        translation.put(("run", "command"), (text, *arguments), origin)
        if launch.is_once_a_node:
            translation.put(("run", "per"), "node", origin)
    else:
        _carry_framework(translation, launch, arguments)
        if launch.kind is ProgramKind.MODULE:
            translation.put(("run", "module"), text, origin)
        else:
            translation.put(("run", "script"), _script_path(text), origin)
        if is_megatron(launch) and translation.carried(("framework",)) == "megatron-lm":
            arguments = carry_megatron(translation, arguments, origin)
        if arguments:
            translation.put(("run", "args"), arguments, origin)
    translation.put(("dataset",), "none", origin, is_implied=True)  # The program is told its data by its own arguments.
    translation.put(("name",), _name(launch, text), origin, is_implied=launch.name is None)
    if launch.prefix:
        translation.put(("run", "prefix"), tuple(word.text for word in launch.prefix), origin)
    if launch.python is not None and posixpath.isabs(launch.python.text):
        translation.put(("run", "python"), launch.python.text, origin)
    if launch.directory not in (".", ""):
        _carry_directory(translation, launch, origin)


def _carry_directory(translation: Translation, launch: Launch, origin: PathKey) -> None:
    if "$" in launch.directory or "`" in launch.directory:
        message = _("not carried over: it runs in {directory}, which is not known")
        hint = _("Write run.workdir.")
        translation.note(origin, message.format(directory=shown(launch.directory)), hint, is_warning=True)
    else:
        translation.put(("run", "workdir"), launch.directory, origin)


def _script_path(text: str) -> str:
    return posixpath.normpath(text) if text and "$" not in text else text


def _name(launch: Launch, text: str) -> str:
    if launch.name is not None and not launch.name.is_open:
        return printable(launch.name.text)[:120].strip() or "job"
    if launch.kind is ProgramKind.MODULE:
        stem = text.rpartition(".")[2]
    else:
        named = (word.text for word in launch.arguments if re.search(r"\.(ya?ml|json|toml|py)$", word.text))
        text = next(named, text) if launch.is_once_a_node else text
        stem = posixpath.splitext(posixpath.basename(text.rpartition("=")[2]))[0]
    return printable(stem)[:120].strip() or "job"


def _carry_framework(translation: Translation, launch: Launch, arguments: Sequence[str]) -> None:
    """Choose the framework whose launch and estimate fit: as a launcher says, else as the script's arguments do."""
    origin: PathKey = (PROGRAM,)
    framework, is_implied = launch.framework or "pytorch-ddp", launch.is_framework_implied
    options = _options(arguments)
    if framework == "pytorch-ddp" and ("--deepspeed" in options or "--deepspeed_config" in options):
        framework, is_implied = "deepspeed", False
    elif framework == "pytorch-ddp" and "--fsdp" in options:
        framework, is_implied = "pytorch-fsdp", False
        stage = next((stage for word, stage in _FSDP_STAGES.items() if word in options["--fsdp"]), None)
        if stage is not None:
            translation.put(("strategy", "zero_stage"), stage, origin)
    elif framework == "pytorch-ddp" and is_megatron(launch):
        framework, is_implied = "megatron-lm", False
    translation.put(("framework",), framework, origin, is_implied=is_implied)
    if framework == "deepspeed":
        translation.put(("framework_options", "config_for"), "none", origin)
        stage_word = options.get("--zero-stage", options.get("--zero_stage", ""))
        if stage_word in ("0", "1", "2", "3") and "strategy.zero_stage" not in launch.settings:
            translation.put(("strategy", "zero_stage"), int(stage_word), origin)


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """Return the script's own options with the words that follow each, as one text."""
    found: dict[str, str] = {}
    last = ""
    for word in arguments:
        if word.startswith("--"):
            last, _separator, value = word.partition("=")
            found[last] = value
        elif last:
            found[last] = f"{found[last]} {word}".strip()
    return found


def _carry_environment(translation: Translation, launch: Launch) -> None:
    """Values that may be secret are named alone: they come from dttui's own environment at the start."""
    secrets: list[str] = []
    for name, word in launch.environment.items():
        key: PathKey = (f"{name}=",)
        if name in _GIVEN:
            translation.use(key)  # Every process is given it.
        elif name in _INTERNAL or len(word.text) > 2_000:
            translation.use(key)
        elif is_secret(name):
            secrets.append(name)
            message = _("carried over as a name under run.secrets, without its value")
            translation.note(key, message, _("Export it before starting dttui."), is_warning=True)
        elif name in _OF_HOST or any(hole.openness is Openness.HOST for hole in word.holes):
            _carry_host_path(translation, launch, name, word)
        elif any(hole.openness is not Openness.NEEDED for hole in word.holes):
            message = _("not carried over: its value is worked out where the script runs: {value}")
            hint = _("Write run.env.{name}, if the program needs it.").format(name=name)
            translation.note(key, message.format(value=shown(word.text)), hint)
        else:
            translation.carry(key, ("run", "env", name), word.text)
    if secrets:
        translation.put(("run", "secrets"), tuple(dict.fromkeys(secrets)), (f"{secrets[0]}=",))


def _carry_host_path(translation: Translation, launch: Launch, name: str, word: Word) -> None:
    """Carry a list of paths without the host's own part, where that may be left out; say so otherwise."""
    key: PathKey = (f"{name}=",)
    parts = [part for part in word.text.split(":") if part and not re.fullmatch(rf"\$\{{?{name}\}}?", part)]
    if name == "PYTHONPATH" and parts and not any("$" in part for part in parts):
        translation.carry(key, ("run", "env", name), ":".join(parts))
        return
    message = _("not carried over: it builds on what each host has: {value}").format(value=shown(word.text))
    translation.note(key, message, _("Write run.env.{name} with the whole value.").format(name=name))


def _carry_settings(translation: Translation, launch: Launch) -> None:
    for path, said in launch.settings.items():
        target = tuple(path.split("."))
        if said.is_open:
            translation.note((said.key,), _("not carried over: {value} is not known").format(value=shown(said.text)))
        elif path == "model.precision":
            precision = {"no": "fp32"}.get(said.text, said.text)
            translation.carry((said.key,), target, precision)
        elif said.number is not None:
            translation.carry((said.key,), target, said.number)
        else:
            translation.carry((said.key,), target, said.text)
    for index, (mount, said) in enumerate(launch.mounts):
        if "run.container.image" in launch.settings:
            translation.put(("run", "container", "mounts", index), mount, (said.key,))
        else:
            message = _("not carried over: {mount} of a container whose image is not known").format(mount=shown(mount))
            translation.note((said.key,), message, _("Write run.container."), is_warning=True)
    if launch.name is not None:
        translation.use((launch.name.key,))


def _carry_nodes(translation: Translation, launch: Launch) -> list[Problem]:
    said = launch.nodes
    least = most = _counted_nodes(launch)
    if said is not None:
        match = _NODES.fullmatch(said.text)
        translation.use((said.key,))
        if match is not None:
            least, most = int(match[1]), int(match[2] or match[1])
        elif _is_open(said):
            message = _("how many nodes there are is not known: {value}").format(value=shown(said.text))
            translation.note((said.key,), message, _("List them under cluster.nodes."), is_warning=True)
            said = None
        else:
            most = 0
        if said is not None and not 1 <= least <= most:
            message = _("expected a number of nodes, N or MIN:MAX, found {value}").format(value=shown(said.text))
            return [_problem(translation.source, (said.key,), message)]
    origin: PathKey = (said.key,) if said is not None else (PROGRAM,)
    if launch.hosts:
        _carry_hosts(translation, launch)
    elif most > 1:
        translation.expect_nodes(origin, least, most)
    _carry_recovery(translation, launch, least, most, origin)
    if launch.master is not None:
        translation.use((launch.master.key,))
        host = re.sub(r":[0-9]+$", "", launch.master.text)
        # The one node is the master, and one that is worked out at run time is the first.
        if most > 1 and not launch.master.is_open and not launch.hosts and host not in ("localhost", "127.0.0.1"):
            translation.expect_master((launch.master.key,), host)
    return _check_restarts(translation, launch)


def _counted_nodes(launch: Launch) -> int:
    """Return how many nodes follow from the processes in all and on each, where nothing says it."""
    if launch.hosts:
        return len(launch.hosts)
    processes, each = launch.processes, launch.per_node or launch.gpus_per_node
    if processes is None or each is None or not processes.number or not each.number:
        return 1
    return max(processes.number // each.number, 1) if processes.number % each.number == 0 else 1


def _is_of_one_node(launch: Launch) -> bool:
    nodes = launch.nodes.number if launch.nodes is not None else _counted_nodes(launch)
    return nodes == 1 and not launch.hosts and launch.hostfile is None and launch.open_hosts is None


def _carry_hosts(translation: Translation, launch: Launch) -> None:
    key: PathKey = (launch.hosts_key,)
    translation.use(key)
    for index, (host, slots) in enumerate(launch.hosts):
        translation.put(("cluster", "nodes", index, "id"), host, key)
        if slots is not None:
            translation.put(("cluster", "nodes", index, "resources", "gpu", "count"), slots, key)


def _carry_recovery(translation: Translation, launch: Launch, least: int, most: int, origin: PathKey) -> None:
    # Only of frameworks that torchrun starts: a command is started once a GPU, by dttui.
    section = ("framework_options", "elastic") if launch.kind is not ProgramKind.COMMAND else ("recovery",)
    if least < most:
        translation.put((*section, "min_nodes"), least, origin)
    restarts = launch.restarts
    if restarts is not None and restarts.number is not None:
        if least == most or restarts.number == 0:  # Of a job that is not elastic dttui starts the ranks again.
            section = ("recovery",)
        translation.carry((restarts.key,), (*section, "max_restarts"), restarts.number)


def _is_open(said: GivenValue) -> bool:
    return said.is_open or re.search(r"[$`<{]", said.text) is not None


def _check_restarts(translation: Translation, launch: Launch) -> list[Problem]:
    restarts = launch.restarts
    if restarts is None or restarts.number is not None:
        return []
    if restarts.is_open:
        translation.use((restarts.key,))
        return []
    message = _("expected a whole number, found {value}").format(value=shown(restarts.text))
    return [_problem(translation.source, (restarts.key,), message)]


def _carry_processes(translation: Translation, launch: Launch) -> list[Problem]:
    target: PathKey = ("resources", "gpu", "count")
    if "resources.gpu.count" in launch.settings:
        return []
    said = launch.per_node
    if said is None and launch.processes is not None and not launch.hosts:
        return _carry_share(translation, launch, launch.processes)
    if said is None:
        _carry_implied(translation, launch, target)
        return []
    translation.use((said.key,))
    if said.number is not None and 1 <= said.number <= _MOST_PROCESSES:
        translation.carry((said.key,), target, said.number)
        return _check_total(translation, launch, said.number)
    if said.text == "cpu":
        translation.carry((said.key,), target, 0)
        message = _("carried over as one process a node: dttui starts none a CPU")
        translation.note((said.key,), message, is_warning=True)
    elif said.is_all_devices:
        pass
    elif _is_open(said):
        message = _("how many processes a node has is not known: {value}; it has one for each GPU")
        hint = _("Write resources.gpu.count.")
        translation.note((said.key,), message.format(value=shown(said.text)), hint, is_warning=True)
    else:
        message = _("expected a number of processes, gpu, auto or cpu, found {value}").format(value=shown(said.text))
        return [_problem(translation.source, (said.key,), message)]
    return []


def _check_total(translation: Translation, launch: Launch, each: int) -> list[Problem]:
    """Say where the processes in all are no multiple of those of a node."""
    processes = launch.processes
    if processes is None or processes.number is None:
        return []
    translation.use((processes.key,))
    if processes.number % each:
        message = _("{processes} processes cannot be shared out evenly among nodes of {each}")
        message = message.format(processes=processes.number, each=each)
        translation.note((processes.key,), message, _("Write resources.gpu.count of each node."), is_warning=True)
    return []


def _carry_share(translation: Translation, launch: Launch, processes: GivenValue) -> list[Problem]:
    """Carry processes in all over as those of each node."""
    key: PathKey = (processes.key,)
    translation.use(key)
    target: PathKey = ("resources", "gpu", "count")
    nodes = launch.nodes.number if launch.nodes is not None else _counted_nodes(launch)
    if processes.number is None or processes.number < 1 or not nodes:
        if _is_open(processes) or nodes is None:
            message = _("how many processes there are is not known: {value}; each node has one for each GPU")
            hint = _("Write resources.gpu.count.")
            translation.note(key, message.format(value=shown(processes.text)), hint, is_warning=True)
            return []
        message = _("expected a number of processes, found {value}").format(value=shown(processes.text))
        return [_problem(translation.source, key, message)]
    if launch.hostfile is not None and not launch.nodes:
        message = _("{processes} processes on the hosts of {file}")
        message = message.format(processes=processes.number, file=shown(launch.hostfile.text))
        translation.note(key, message)
        return []
    if processes.number % nodes:
        message = _("{processes} processes cannot be shared out evenly among {machines} machines")
        message = message.format(processes=processes.number, machines=nodes)
        translation.note(key, message, _("Write resources.gpu.count of each node."), is_warning=True)
        return []
    translation.carry(key, target, processes.number // nodes)
    return []


def _carry_implied(translation: Translation, launch: Launch, target: PathKey) -> None:
    """Carry the number of processes that follows from the launcher, where nothing says it."""
    visible = launch.environment.get("CUDA_VISIBLE_DEVICES")
    numbers = [part for part in visible.text.split(",") if part.strip().isdecimal()] if visible is not None else []
    takes_all = launch.launcher in ("accelerate launch", "deepspeed", "composer") or launch.is_once_a_node
    if launch.hosts and any(slots is not None for _host, slots in launch.hosts):
        return
    if takes_all and numbers and visible is not None and not visible.holes:
        translation.put(target, len(numbers), ("CUDA_VISIBLE_DEVICES=",), is_implied=True)
    elif launch.gpus_per_node is not None and launch.gpus_per_node.number and launch.launcher != "torchrun":
        translation.put(target, launch.gpus_per_node.number, (launch.gpus_per_node.key,), is_implied=True)
    elif not takes_all:
        translation.put(target, 1, (PROGRAM,), is_implied=True)  # torchrun's own default, and that of a bare program


def _note_ranks(translation: Translation, launch: Launch) -> None:
    """Say by what a script finds its rank, where its launcher told it otherwise."""
    if launch.launcher not in ("srun", "mpirun") or launch.is_once_a_node:
        return
    names = "SLURM_PROCID" if launch.launcher == "srun" else "OMPI_COMM_WORLD_RANK, PMI_RANK"
    message = _("each rank finds RANK, LOCAL_RANK and WORLD_SIZE in its environment, and no {names}")
    hint = _("A script that is told its launcher, as by --launcher slurm, has to be told another one.")
    is_told = any(re.search(r"launcher[= ]?.?(slurm|mpi)", word.text) for word in launch.arguments)
    is_told |= any(a.text == "--launcher" and b.text in ("slurm", "mpi") for a, b in pairwise(launch.arguments))
    translation.note((PROGRAM,), message.format(names=names), hint, is_warning=is_told)


def _note_what_is_open(translation: Translation, launch: Launch) -> None:
    """Say what somebody has still to give, and what the script would have worked out when it runs."""
    words = [*launch.open_options]
    words += [word for word in (launch.program, *launch.arguments) if word is not None]
    holes = [hole for word in words for hole in word.holes]
    variables = [word for name, word in launch.environment.items() if translation.has(("run", "env", name))]
    holes += [hole for word in variables for hole in word.holes if hole.openness is Openness.NEEDED]
    holes = list(dict.fromkeys(holes))
    words += variables
    origin: PathKey = (PROGRAM,)
    own = [hole.text for hole in holes if hole.openness is Openness.HOST]
    if own:
        message = _("each host has its own {name}").format(name=", ".join(own))
        translation.note(origin, message, _("Write the whole path in its place."), is_warning=True)
    needed = [hole.text for hole in holes if hole.openness is Openness.NEEDED]
    if any(text in _PASSED_ON for text in needed):
        needed = [text for text in needed if text not in _PASSED_ON]
        message = _("the script passes on arguments of its own, and none were given")
        translation.note(origin, message, _("Give them after --, or write them in run.args."))
    if needed:
        message = _("still to be given: {names}").format(names=", ".join(needed))
        hint = _("Give arguments and NAME=VALUE after --, or write them where they stand in run.")
        translation.note(origin, message, hint, is_warning=True)
    worked_out = [hole.text for hole in holes if hole.openness not in (Openness.NEEDED, Openness.HOST)]
    if worked_out:
        message = _("worked out only where the script runs: {texts}").format(texts=", ".join(worked_out))
        translation.note(origin, message, _("Write what is meant in run.args."), is_warning=True)
    is_code = launch.kind is ProgramKind.COMMAND and any(word.text == "-c" for word in launch.arguments)
    words = [word for word in words if not is_code or word not in launch.arguments]
    places = [found[0] for word in words for found in _PLACEHOLDER.finditer(word.text) if not word.holes]
    if places:
        message = _("placeholders: {texts}").format(texts=", ".join(dict.fromkeys(places)))
        translation.note(origin, message, _("Write what is meant in their place."), is_warning=True)


def _problem(source: YamlSource, origin: PathKey, message: str, hint: str = "") -> Problem:
    return source.problem(origin, source.mark(origin), message, hint)
