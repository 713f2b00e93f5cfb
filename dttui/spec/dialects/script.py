"""Shell scripts and command lines as jobs: followed to the command that trains, and that taken apart."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from dttui.i18n import _
from dttui.spec.dialects.commands.accelerate_launch import read_configuration
from dttui.spec.dialects.commands.carrying import carry
from dttui.spec.dialects.commands.launch import Launch, ProgramKind
from dttui.spec.dialects.commands.launcher_options import OptionError, names
from dttui.spec.dialects.commands.peeling import peel
from dttui.spec.dialects.commands.schedulers import DIRECTIVE, SLURM, directives, take_slurm
from dttui.spec.dialects.commands.trainers import OWN_RANKS
from dttui.spec.dialects.repeated_launches import note_repeats
from dttui.spec.dialects.script_lines import ScriptLines, shown_lines
from dttui.spec.dialects.script_recognition import PROMPT
from dttui.spec.dialects.shell.command_words import ShellCommand, Word
from dttui.spec.dialects.shell.evaluator import ScriptShell
from dttui.spec.dialects.shell.flow import Ran, TooLong
from dttui.spec.dialects.shell.open_parts import OpenParts, cleaned
from dttui.spec.dialects.shell.shell_state import ShellState
from dttui.spec.dialects.translation import Translated, make_note
from dttui.spec.findings import Finding
from dttui.spec.problems import DocumentError, PathKey, Problem, printable, shown
from dttui.spec.secret_names import is_secret
from dttui.spec.text import ENV_NAME
from dttui.spec.yaml_source import Mark, YamlSource

_OTHER_SHELLS = re.compile(r"#!\s*\S*?(?:env\s+)?(zsh|csh|tcsh|fish|ksh|perl|ruby|node|Rscript)\b")
_LONGEST = 1_000_000
_ENVIRONMENTS = frozenset(
    {
        *(("conda", "activate"), ("mamba", "activate"), ("micromamba", "activate"), ("pyenv", "activate")),
        *(("module", "load"), ("ml", "load"), ("module", "add"), ("spack", "load")),
    }
)
_TRIVIAL = names(
    """
    echo printf mkdir sleep date ls hostname printenv nvidia-smi nvcc free df tee cat pwd which whoami true
    ulimit module conda env sort head tail grep awk sed scontrol kill pkill touch test mktemp basename
    dirname tr wc cut ibstat
    """
)
"""Programs that change nothing a training needs, as a rule."""
_ELSEWHERE = names("docker podman kubectl ssh pdsh parallel-ssh make sky dstack jsrun clush salloc nerdctl enroot")
"""Programs that start a command somewhere else."""
_TRAINS = re.compile(r"(pre)?train(er|ing)?|(fine)?tun(e|ing)|sft|dpo|grpo|ppo|rlhf")
_DOES_ELSE = re.compile(
    r"eval(uate|uation)?|tests?|infer(ence)?|predict(ion)?|generat(e|ion)|bench(mark)?|export|prepare|preprocess(ing)?"
    r"|tokenize"
)
"""Words of a program's name by which it trains, and by which it does not: the first counts."""
_RUNS = re.compile(r"main|run")
"""Words by which it may, where none of these is there."""
_MOST_TOLD = 8
_MOST_DIRECTIVES = 1_000
_MOST_PROGRAMS = 2
"""Different programs that a script may start in a row, such as a test after the training; what is called so trains."""


def translate_words(
    words: Sequence[str], name: str, read: Callable[[str], str | None] = lambda _path: None
) -> Translated:
    """Carry a command line over.

    Args:
        words: of it.
        name: what problems call it.
        read: the text of a script that it starts; `None` where it is not there.

    Raises:
        DocumentError: it starts nothing that trains, or an option is wrong.
    """
    if len(words) == 1 and " " in words[0].strip():
        words = _split_words(words[0])
    quoted = [shlex.quote(_masked(text)) for text in words]
    columns = [1]
    for text in quoted:
        columns.append(columns[-1] + len(text) + 1)
    line = " ".join(quoted)
    marked = tuple(Word(text, Mark(1, column), raw=text) for text, column in zip(words, columns, strict=False))
    if not marked:
        message = _("expected torchrun, found {value}").format(value=_("nothing"))
        raise DocumentError([Problem(name, message, _known_launchers(), line=1, column=1)])
    holes = OpenParts()
    shell = ScriptShell(lambda _name: None, holes, read)
    command = ShellCommand(marked, {}, ".")
    lines = ScriptLines(name, (line,), shell.files)
    try:
        launch = peel(command, shell)
    except OptionError as error:
        raise _refused(error, lines) from error
    except TooLong as error:
        raise DocumentError([_too_long(name)]) from error
    if launch is None:
        raise DocumentError([_unknown_program(command, lines)])
    read_configuration(launch, read)
    _take_horovod(launch, read)
    return carry(launch, name, (line,), lines.others)


def translate_script(
    text: str,
    name: str,
    arguments: Sequence[str] = (),
    *,
    given: Callable[[str], str | None] = lambda _name: None,
    read: Callable[[str], str | None] = lambda _path: None,
) -> Translated:
    """Carry a shell script over.

    Args:
        text: of the script.
        name: what problems call it, and what it takes for its own path.
        arguments: that it is started with, `NAME=VALUE` before them for variables.
        given: what a variable is that neither sets, by its name.
        read: the text of a file that it reads commands from; `None` where it is not there.

    Raises:
        DocumentError: nothing in it trains, or it ends before.
    """
    if len(text) > _LONGEST:
        raise DocumentError([Problem(name, _("the script is too long to be followed"))])
    lines = shown_lines(text)
    text = PROMPT.sub(r"\1  ", text)
    if (other := _OTHER_SHELLS.match(text)) is not None:
        message = _("this is a script for {shell}, and only those for sh and bash are followed")
        hint = _("Import the command that it starts: dttui import -- COMMAND.")
        first = printable(lines[0])
        raise DocumentError([Problem(name, message.format(shell=other[1]), hint, (), 1, 1, first)])
    variables, words = _assignments(arguments)
    try:
        slurm = _slurm(text)
    except TooLong as error:
        raise DocumentError([_too_long(name)]) from error
    known = {**_of_slurm(slurm), **variables}
    holes = OpenParts()
    state = ShellState(name, list(words), {**variables}, set(variables))
    gpus = slurm.gpus_per_node.number if slurm is not None and slurm.gpus_per_node is not None else None
    shell = ScriptShell(lambda variable: known.get(variable, given(variable)), holes, read, gpus)
    try:
        ran = shell.run(text, state)
        return _Choice(ran, shell, ScriptLines(name, lines, shell.files), slurm).translated()
    except TooLong as error:
        raise DocumentError([_too_long(name)]) from error


class _Choice:
    """Chooses the command of a script that trains, and says what else it does."""

    def __init__(self, ran: Ran, shell: ScriptShell, lines: ScriptLines, slurm: Launch | None) -> None:
        self._ran = ran
        self._shell = shell
        self._lines = lines
        self._problem = lines.problem
        self._slurm = slurm

    def translated(self) -> Translated:
        """Return the job. Raises DocumentError."""
        launches = self._launches()
        known = [launch for launch in launches if launch.is_known]
        with_ranks = [launch for launch in known if launch.launchers]
        candidates = with_ranks or known or launches
        chosen = max(candidates, key=_fitness, default=None)
        programs = {launch.program.text: launch for launch in reversed(with_ranks) if launch.program is not None}
        if len(programs) > _MOST_PROGRAMS:
            raise DocumentError([self._several(list(reversed(programs.values())))])
        if chosen is None:
            raise DocumentError([self._nothing()])
        read_configuration(chosen, self._shell.read)
        _take_horovod(chosen, self._shell.read)
        if self._slurm is not None:
            _join(chosen, self._slurm)
        translated = carry(chosen, self._lines.name, self._lines.own, self._lines.others)
        others = [launch for launch in launches if launch is not chosen]
        notes = [*translated.notes, *self._notes(translated, chosen, others)]
        return replace(translated, notes=tuple(notes))

    def _several(self, launches: Sequence[Launch]) -> Problem:
        """Return that a script starts several trainings, of which a job is one."""
        lines = ", ".join(
            _("{program} in line {number}").format(program=launch.program.text, number=launch.mark.line_text)
            for launch in launches
            if launch.program is not None
        )
        message = _("it starts {count} programs one after another, and a job is one: {lines}")
        message = message.format(count=len(launches), lines=lines)
        return self._problem(message, launches[0].mark, _("Import one of them: dttui import -- COMMAND."))

    def _launches(self) -> list[Launch]:
        found: list[Launch] = []
        for command in self._ran.commands:
            try:
                launch = peel(command, self._shell)
            except OptionError as error:
                if self._ran.unreadable is not None:
                    raise DocumentError([self._unreadable(self._ran.unreadable)]) from error
                raise _refused(error, self._lines) from error
            if launch is not None:
                found.append(launch)
        return found

    def _nothing(self) -> Problem:
        """Return why a script is no job."""
        end, unreadable = self._ran.end, self._ran.unreadable
        if end is not None and end[0] != 0:
            message = _("the script ends here, with exit code {code}, before it starts anything").format(code=end[0])
            if end[2]:
                message = _("{message}: {said}").format(message=message, said=shown(end[2]))
            hint = _("Give its arguments: dttui import {file} -- ARGUMENTS.").format(file=self._lines.name)
            return self._problem(message, end[1], hint)
        if unreadable is not None:
            return self._unreadable(unreadable)
        submitted = next((command for command in self._ran.commands if command.words[0].text == "sbatch"), None)
        if submitted is not None:
            script = next((word.text for word in reversed(submitted.words) if not word.text.startswith("-")), "")
            message = _("this only submits another script: {script}").format(script=shown(script))
            return self._problem(message, submitted.mark, _("Import that one."))
        started = next((command for command in self._ran.commands if _other_script(command)), None)
        if started is not None:
            message = _("this only starts another script, which is not here: {script}")
            script = _other_script(started)
            rest = " ".join(word.text for word in started.words[2:])
            hint = _("Import that one: dttui import {script} -- {arguments}.").format(script=script, arguments=rest)
            return self._problem(message.format(script=shown(script)), started.mark, hint)
        if len(self._ran.commands) == 1:
            return _unknown_program(self._ran.commands[0], self._lines)
        names = [posixpath.basename(command.words[0].text) for command in self._ran.commands]
        message = _("nothing in it starts training by a launcher that is known")
        if names:
            programs = ", ".join(dict.fromkeys(names))[:200]
            message = _("{message}; it starts {programs}").format(message=message, programs=shown(programs))
        return self._problem(message, Mark(1, 1), _known_launchers())

    def _environments(self, source: YamlSource, origin: PathKey) -> Iterator[Finding]:
        """Say which environments and modules a script makes its own, which ranks would not have."""
        hint = _("Write run.python, the interpreter of that environment, or run.prefix.")
        for command in (*self._ran.commands, *self._ran.others):
            texts = tuple(word.text for word in command.words[:2])
            if texts in _ENVIRONMENTS:
                line = shown(" ".join(word.text for word in command.words))
                message = _("not carried over: line {number}: {command}").format(
                    number=command.mark.line_text, command=line
                )
                yield make_note(source, origin, message, hint)

    def _other_programs(
        self, source: YamlSource, origin: PathKey, trained: Collection[Mark], passed: Collection[ShellCommand]
    ) -> Iterator[Finding]:
        """Say what else a script starts: it installs, fetches, prepares."""
        found: dict[str, str] = {}
        for command in (*self._ran.commands, *self._ran.others):
            name = posixpath.basename(command.words[0].text)
            is_told = command.is_background or tuple(word.text for word in command.words[:2]) in _ENVIRONMENTS
            if name not in _TRIVIAL and not is_told and command.mark not in trained and command not in passed:
                line = " ".join(word.text for word in command.words[:2])
                found.setdefault(line, command.mark.line_text)
        if found:
            told = [_("{program} in line {number}").format(program=shown(p[:40]), number=n) for p, n in found.items()]
            message = _("not carried over: the script starts these too: {programs}")
            rest = ["…"] if len(told) > _MOST_TOLD else []
            message = message.format(programs=", ".join([*told[:_MOST_TOLD], *rest]))
            yield make_note(
                source, origin, message, _("What is needed before the training has to be done on the hosts.")
            )

    def _unreadable(self, mark: Mark) -> Problem:
        message = _("this is no complete script: it cannot be read from here on")
        return self._problem(message, mark, _("`bash -n {file}` says more.").format(file=self._lines.name))

    def _notes(self, translated: Translated, chosen: Launch, others: Sequence[Launch]) -> list[Finding]:
        source, origin = translated.source, ("program",)
        notes: list[Finding] = []
        launches = tuple(others)
        trained = {launch.mark for launch in (chosen, *launches)}
        if self._ran.unreadable is not None:
            message = _("line {number} is no bash that can be read, and what stands there is passed over")
            hint = _("`bash -n {file}` says more.").format(file=self._lines.name)
            message = message.format(number=self._ran.unreadable.line_text)
            notes.append(make_note(source, origin, message, hint, is_warning=True))
        if self._ran.demanded:
            names = ", ".join(f"${name}" for name in self._ran.demanded)
            message = _("the script ends without these, which nothing sets: {names}").format(names=names)
            hint = _("Give arguments and NAME=VALUE after --, or write them where they stand in run.")
            notes.append(make_note(source, origin, message, hint, is_warning=True))
        for command in self._ran.commands:
            if command.is_background and command.mark not in trained:
                line = shown(" ".join(word.text for word in command.words)[:100])
                message = _("not carried over: line {number} starts {command} beside it")
                message = message.format(number=command.mark.line_text, command=line)
                notes.append(make_note(source, origin, message, _("Start that yourself."), is_warning=True))
        repeats, others = note_repeats(source, origin, chosen, others)
        notes += repeats
        for launch in others:
            program = launch.program.text if launch.program is not None else ""
            where = _("line {number}").format(number=launch.mark.line_text)
            message = _("not carried over: {where} starts {program} besides").format(
                where=where, program=shown(program)
            )
            hint = _("Import it by itself: dttui import -- COMMAND.")
            is_training = bool(launch.launchers) and launch.is_known
            notes.append(make_note(source, origin, message, hint, is_warning=is_training))
        for path, (_text, mark) in self._ran.written.items():
            if any(path in word.text for word in chosen.arguments):
                message = _("not carried over: line {number} writes {file}, which the program is given")
                hint = _("Write that file before the launch.")
                notes.append(
                    make_note(
                        source, origin, message.format(number=mark.line_text, file=shown(path)), hint, is_warning=True
                    )
                )
        for word in self._ran.sourced:
            message = _("not carried over: line {number} reads commands from {file}")
            hint = _activation_hint(word.text)
            notes.append(
                make_note(source, origin, message.format(number=word.mark.line_text, file=shown(word.text)), hint)
            )
        notes += self._environments(source, origin)
        passed = [command for launch in (chosen, *launches) for command in launch.passed]
        notes += self._other_programs(source, origin, trained, passed)
        if self._ran.undecided:
            numbers = ", ".join(mark.line_text for mark in sorted(set(self._ran.undecided), key=_by_place))
            message = _(
                "conditions that only a host decides, in lines {numbers}: the first way that starts something is taken"
            )
            hint = _("Look whether it is the one that was meant.")
            notes.append(make_note(source, origin, message.format(numbers=numbers), hint, is_warning=True))
        return notes


def _fitness(launch: Launch) -> int:
    """Return 2 for a program that is called as those that train are, 0 for one that prepares or tests, 1 for others."""
    name = posixpath.basename(launch.program.text).casefold() if launch.program is not None else ""
    words = [word.rstrip("0123456789") for word in re.split(r"[_.-]", name.removesuffix(".py"))]
    first = next((word for word in words if _TRAINS.fullmatch(word) or _DOES_ELSE.fullmatch(word)), "")
    if _DOES_ELSE.fullmatch(first) or "tokenizer" in words:
        return 0
    return 2 if first or any(map(_RUNS.fullmatch, words)) else 1


def _take_horovod(launch: Launch, read: Callable[[str], str | None]) -> None:
    """Take a script that MPI starts for Horovod's, where it says so."""
    if launch.launcher != "mpirun" or launch.kind is not ProgramKind.SCRIPT or launch.program is None:
        return
    text = read(launch.program.text) if not launch.program.holes else None
    says_so = text is not None and re.search(r"^\s*(import|from) horovod\b", text, re.MULTILINE) is not None
    if says_so or any(name.startswith("HOROVOD_") for name in launch.environment):
        launch.framework, launch.is_framework_implied = "horovod", False


def _other_script(command: ShellCommand) -> str:
    """Return the script that a command starts, `bash run.sh` or `./run.sh`; nothing for others."""
    words = [word.text for word in command.words]
    if len(words) > 1 and words[0] in ("bash", "sh") and not words[1].startswith("-"):
        return words[1]
    return words[0] if re.fullmatch(r"\S*/\S+\.sh|\S+\.sh", words[0]) else ""


def _join(launch: Launch, slurm: Launch) -> None:
    """Fill in what the directives of a script say and its commands do not."""
    launch.said = {**launch.said, **{key: said for key, said in slurm.said.items() if key not in launch.said}}
    launch.remarks += slurm.remarks
    launch.nodes = launch.nodes or slurm.nodes
    is_by_task = launch.launcher in ("srun", "mpirun")
    if is_by_task and launch.per_node is None:
        launch.per_node = slurm.per_node
    if is_by_task and launch.processes is None and launch.per_node is None:
        launch.processes = slurm.processes
    launch.gpus_per_node = launch.gpus_per_node or slurm.gpus_per_node
    launch.name = launch.name or slurm.name
    launch.mounts = launch.mounts or slurm.mounts
    for path, said in slurm.settings.items():
        launch.settings.setdefault(path, said)


def _slurm(text: str) -> Launch | None:
    """Return what the directives of a script say; `None` where it has none. Raises TooLong."""
    launch = Launch(Mark(1, 1))
    has_any = False
    for number, words in enumerate(directives(text)):
        if number >= _MOST_DIRECTIVES:
            raise TooLong
        has_any = True
        rest = words
        while rest:
            try:
                given, rest = SLURM.parse(rest)
            except OptionError:
                break
            take_slurm(launch, given, DIRECTIVE)
            rest = rest[1:]  # A word that is no option is passed over, as a placeholder is.
    return launch if has_any else None


def _of_slurm(slurm: Launch | None) -> dict[str, str]:
    """Return the variables that Slurm gives a script by its directives."""
    if slurm is None:
        return {}
    nodes, each, tasks, gpus = slurm.nodes, slurm.per_node, slurm.processes, slurm.gpus_per_node
    found = {
        "SLURM_NNODES": nodes,
        "SLURM_JOB_NUM_NODES": nodes,
        "SLURM_NTASKS_PER_NODE": each,
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_GPUS_ON_NODE": gpus,
        "SLURM_GPUS_PER_NODE": gpus,
        "SLURM_JOB_NAME": slurm.name,
    }
    variables = {name: said.text for name, said in found.items() if said is not None and not said.is_open}
    if "SLURM_NTASKS" not in variables and nodes is not None and each is not None and nodes.number and each.number:
        variables["SLURM_NTASKS"] = variables["SLURM_NPROCS"] = str(nodes.number * each.number)
    return {name: value for name, value in variables.items() if name == "SLURM_JOB_NAME" or value.isdecimal()}


def _assignments(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return `NAME=VALUE` before arguments, and the arguments."""
    variables: dict[str, str] = {}
    rest = [cleaned(word) for word in arguments]
    while rest:
        name, separator, value = rest[0].partition("=")
        if not separator or not re.fullmatch(ENV_NAME, name):
            break
        variables[name] = value
        rest.pop(0)
    return variables, rest


def _refused(error: OptionError, lines: ScriptLines) -> DocumentError:
    return DocumentError([lines.problem(error.message, error.word.mark, error.hint)])


def _unknown_program(command: ShellCommand, lines: ScriptLines) -> Problem:
    program = command.words[0].text
    message = _("expected torchrun, found {value}").format(value=shown(program))
    hint = _("Import the command that stands behind it.") if program in _ELSEWHERE else _known_launchers()
    return lines.problem(message, command.mark, hint)


def _by_place(mark: Mark) -> tuple[str, int]:
    return mark.file, mark.line


def _too_long(name: str) -> Problem:
    message = _("the script does more than is followed here")
    return Problem(name, message, _("Import the command that it starts: dttui import -- COMMAND."))


def _known_launchers() -> str:
    known = ("torchrun", "accelerate launch", "deepspeed", "horovodrun", "mpirun", "srun", "python", *sorted(OWN_RANKS))
    return _("Known are {names}.").format(names=", ".join(known))


def _activation_hint(path: str) -> str:
    if path.endswith("/bin/activate"):
        return _("Write run.python: {path}.").format(path=path.removesuffix("activate") + "python")
    return _("Give the variables that it sets after --, as NAME=VALUE, or write run.env.")


def _split_words(line: str) -> list[str]:
    """Return the words of a whole line that came as one, in quotes."""
    try:
        return shlex.split(line)
    except ValueError:
        return [line]


def _masked(text: str) -> str:
    name, separator, value = text.partition("=")
    return f"{name}=***" if separator and value and is_secret(name) else text
