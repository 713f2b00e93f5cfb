"""Launchers that start a program once for each rank: `srun`, `mpirun`, `horovodrun`, and the directives of `sbatch`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import takewhile

from dttui.i18n import _
from dttui.spec.dialects.commands.container_options import take_image, take_mounts
from dttui.spec.dialects.commands.launch import GivenValue, Launch
from dttui.spec.dialects.commands.launcher_options import Given, OptionError, Options, names
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.yaml_source import Mark

DIRECTIVE = "#SBATCH"
"""What begins a line that sbatch reads, and what places call its options by."""

SLURM = Options(
    "srun",
    names(
        """
    --account --begin --chdir --comment --constraint --container --container-image --container-mounts
    --container-name --container-workdir --cores-per-socket --cpu-bind --cpu-freq --cpus-per-gpu
    --cpus-per-task --dependency --distribution --error --exclude --export --gpu-bind --gpu-freq --gpus
    --gpus-per-node --gpus-per-socket --gpus-per-task --gres --hint --input --job-name --jobid --licenses
    --mail-type --mail-user --mem --mem-bind --mem-per-cpu --mem-per-gpu --mpi --network --nodefile
    --nodelist --nodes --ntasks --ntasks-per-core --ntasks-per-gpu --ntasks-per-node --ntasks-per-socket
    --open-mode --output --partition --priority --qos --reservation --signal --sockets-per-node --switches
    --threads-per-core --time --tmp --wait --wckey --array --wrap --accel-bind --multi-prog
    """
    ),
    names(
        """
    --exclusive --kill-on-bad-exit --container-mount-home --label --overlap --overcommit --oversubscribe
    --no-kill --requeue --no-requeue --unbuffered --pty --quiet --verbose --immediate --parsable
    --no-container-mount-home --no-container-remap-root
    """
    ),
    short={
        "-A": "--account",
        "-C": "--constraint",
        "-D": "--chdir",
        "-G": "--gpus",
        "-J": "--job-name",
        "-K": "--kill-on-bad-exit",
        "-N": "--nodes",
        "-n": "--ntasks",
        "-c": "--cpus-per-task",
        "-e": "--error",
        "-l": "--label",
        "-m": "--distribution",
        "-o": "--output",
        "-p": "--partition",
        "-q": "--qos",
        "-t": "--time",
        "-u": "--unbuffered",
        "-w": "--nodelist",
        "-r": "--relative",
        "-x": "--exclude",
        "-a": "--array",
        "-d": "--dependency",
        "-W": "--wait",
        "-M": "--clusters",
        "-i": "--input",
        "-L": "--licenses",
        "-O": "--overcommit",
        "-Q": "--quiet",
        "-v": "--verbose",
    },
)
"""Of srun and sbatch (Slurm 24.05, and pyxis)."""

_MPI = Options(
    "mpirun",
    names(
        """
    --np --npernode --map-by --bind-to --rank-by --host --hostfile --machinefile --ppn --hosts --env
    --envlist --genvlist --display --report-bindings-to --oversubscribe-to --prefix --wdir --path
    --launch-agent --timeout --output-filename --output --cpu-bind --depth --line-buffer --add-host --app
    --perhost --cores-per-proc --rsh --iface
    """
    ),
    names(
        """
    --allow-run-as-root --oversubscribe --tag-output --report-bindings --nolocal --verbose --bind-to-core
    --bind-to-none --display-map --display-allocation --print-rank-map --no-local --line-buffer
    --timestamp-output --forward-signals
    """
    ),
    pairs=frozenset({"--mca", "--gmca", "--genv", "--am", "--prtemca", "--pmixmca"}),
    short={
        "-n": "--np",
        "-np": "--np",
        "-c": "--np",
        "-H": "--host",
        "-host": "--host",
        "-hosts": "--hosts",
        "-f": "--hostfile",
        "-x": "--x",
        "-env": "--genv",
        "-N": "--npernode",
        "-ppn": "--ppn",
        "-perhost": "--ppn",
        "--perhost": "--ppn",
        "-machinefile": "--hostfile",
        "--machinefile": "--hostfile",
        "-hostfile": "--hostfile",
        "-f1": "--hostfile",
        "--npernode": "--npernode",
    },
)
"""Of OpenMPI, MPICH's hydra, Intel MPI and PALS."""
_MPI_VALUED = Options(_MPI.program, _MPI.valued | {"--x"}, _MPI.flags, _MPI.pairs, _MPI.short, takes_underscores=False)

_HOROVOD = Options(
    "horovodrun",
    names(
        """
    --num-proc --hosts --hostfile --host-discovery-script --slots --min-num-proc --max-num-proc --ssh-port
    --ssh-identity-file --network-interfaces --output-filename --start-timeout --config-file
    --elastic-timeout --reset-limit --cycle-time-ms --fusion-threshold-mb --cache-capacity
    --timeline-filename --mpi-args --binding-args --num-nccl-streams --thread-affinity --log-level
    --cooldown-range --prefix-output-with-timestamp --autotune-log-file --stall-check-warning-time-seconds
    --stall-check-shutdown-time-seconds --gloo-timeout-seconds
    """
    ),
    names(
        """
    --gloo --mpi --jsrun --tcp --verbose --disable-cache --autotune --timeline-mark-cycles
    --no-hierarchical-allreduce --hierarchical-allreduce --no-stall-check --log-hide-timestamp --check-build
    --version
    """
    ),
    short={
        "-np": "--num-proc",
        "-p": "--ssh-port",
        "-H": "--hosts",
        "-hostfile": "--hostfile",
        "--np": "--num-proc",
        "--min-np": "--min-num-proc",
        "--max-np": "--max-num-proc",
        "-i": "--ssh-identity-file",
    },
)

_JOB_NAME = "--job-name"
_SLURM_OWN = frozenset(
    {
        "--label",
        "--kill-on-bad-exit",
        "--unbuffered",
        "--wait",
        "--requeue",
        "--no-requeue",
        "--overcommit",
        "--overlap",
    }
)
"""What is so with dttui anyway, or means nothing without Slurm's own step."""


def directives(text: str) -> Iterator[tuple[Word, ...]]:
    """Yield the options of each line that sbatch reads, which end where the script's commands begin."""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith(DIRECTIVE) and stripped[len(DIRECTIVE) :][:1].isspace():
            column = line.index(DIRECTIVE) + 1
            yield tuple(Word(word, Mark(number, column)) for word in _split(stripped[len(DIRECTIVE) :]))
        elif stripped and not stripped.startswith("#"):
            return


def _split(text: str) -> list[str]:
    """Return the words before a comment, which begins with a word: `nvcr.io#nvidia` has none."""
    for attempt in (text, re.sub(r"(?:^|\s)#.*", "", text)):
        with suppress(ValueError):
            return list(takewhile(lambda word: not word.startswith("#"), shlex.split(attempt)))
    return text.split()


def take_slurm(launch: Launch, given: Sequence[Given], program: str) -> None:
    """Take options of srun, or of a script's directives."""
    tasks_per_node = None
    for option in given:
        said = launch.take(f"{program} {option.name}", option)
        if option.name == "--nodes":
            launch.nodes = GivenValue(
                said.key, Word(option.value.text.replace("-", ":"), option.value.mark, option.value.holes)
            )
        elif option.name == "--ntasks":
            launch.processes = said
        elif option.name == "--ntasks-per-node":
            launch.per_node, tasks_per_node = said, said
        elif option.name in ("--gpus-per-node", "--gres", "--gpus-per-task", "--gpus"):
            _take_gpus(launch, said, option.name)
        elif option.name == _JOB_NAME:
            launch.name = said
        elif option.name == "--export":
            _take_exported(launch, said)
        elif option.name in ("--container-image", "--container-mounts", "--container-workdir"):
            _take_container(launch, said, option.name)
        elif option.name == "--array":
            hint = _("Import one task of it after the other, with -- SLURM_ARRAY_TASK_ID=N.")
            launch.leave_out(said, _("a job array is several jobs, and this is one"), hint, is_warning=True)
        elif option.name in ("--cpus-per-task", "--mem", "--time", "--mem-per-gpu", "--mem-per-cpu"):
            launch.leave_out(said, _("Slurm's own limits; a job takes its hosts whole"))
        elif option.name not in _SLURM_OWN and option.name != "--ntasks-per-node":
            launch.leave_out(said, _("Slurm's own; a job runs on the environments under cluster.nodes"))
    _share_out_gpus(launch)
    if tasks_per_node is not None and program != DIRECTIVE:
        launch.processes = None if not any(option.name == "--ntasks" for option in given) else launch.processes


def _share_out_gpus(launch: Launch) -> None:
    """Settle how many GPUs a node has of those that each task, or all of them, have."""
    each, tasks, nodes = launch.gpus_per_task, launch.per_node, launch.nodes
    if each is not None and each.number:
        count = tasks.number if tasks is not None else None
        if count is None and launch.processes is not None and nodes is not None and nodes.number:
            count = (launch.processes.number or 0) // nodes.number
        launch.gpus_per_node = GivenValue(each.key, Word(str(each.number * max(count or 1, 1)), each.word.mark))
    total = launch.gpus_in_all
    if total is not None and total.number and nodes is not None and nodes.number and total.number % nodes.number == 0:
        launch.gpus_per_node = GivenValue(total.key, Word(str(total.number // nodes.number), total.word.mark))


def _take_gpus(launch: Launch, said: GivenValue, option: str) -> None:
    """Take how many GPUs a node, a task or the job has: `8`, `gpu:8`, `gpu:a100:8`, `a100:8`."""
    text = said.text
    if option == "--gres":  # Of all kinds: `lscratch:200,gpu:8`.
        text = ",".join(part for part in text.split(",") if re.match(r"(?:gres/)?gpu(?::|$)", part))
    match = re.search(r"(?:^|,)(?:gres/)?(?:gpu:)?(?:([A-Za-z][\w.-]*):)?([0-9]{1,4})(?:\(|,|$)", text)
    if match is None:
        if text != "gpu" and not said.is_open:
            launch.leave_out(said, _("dttui shares out GPUs alone"))
        return
    number = GivenValue(said.key, Word(match[2], said.word.mark))
    if match[1]:
        launch.settings["resources.gpu.type"] = GivenValue(said.key, Word(match[1].upper(), said.word.mark))
    if option == "--gpus-per-task":
        launch.gpus_per_task = number
    elif option != "--gpus":
        launch.gpus_per_node = number
    else:
        launch.gpus_in_all = number


def _take_exported(launch: Launch, said: GivenValue) -> None:
    for part in said.text.split(","):
        name, separator, value = part.partition("=")
        if separator and name.isidentifier():
            launch.environment[name] = Word(value, said.word.mark, said.word.holes)


def _take_container(launch: Launch, said: GivenValue, option: str) -> None:
    if option == "--container-mounts":
        take_mounts(launch, said)
    elif option == "--container-image":
        _take_image(launch, said)
    else:
        launch.leave_out(said, _("dttui starts the container"), _("Write run.workdir."), is_warning=True)


def _take_image(launch: Launch, said: GivenValue) -> None:
    """Take pyxis' `docker://registry#image`; a file of its own no other engine runs."""
    text = re.sub(r"^(?:docker|dockerd|podman)://", "", said.text)
    if re.match(r"\.{0,2}/|~", text) or text.endswith(".sqsh"):
        reason = _("a file that enroot made runs under no other engine")
        hint = _("Write run.container.engine, and run.container.image with the name that it was made from.")
        launch.leave_out(said, reason, hint, is_warning=True)
    else:
        take_image(launch, GivenValue(said.key, Word(text, said.word.mark, said.word.holes), said.mark), "docker")
        hint = _("Write run.container.engine: docker, podman or apptainer, as the hosts have it.")
        launch.remark(said, _("which engine runs the image is a guess: docker"), hint, is_warning=True)


def srun(launch: Launch, words: Sequence[Word]) -> Sequence[Word]:
    """Take `srun OPTIONS`, and return what it starts."""
    given, rest = SLURM.parse(words[1:])
    take_slurm(launch, given, "srun")
    launch.launchers.append("srun")
    return rest


def mpirun(launch: Launch, words: Sequence[Word]) -> Sequence[Word]:
    """Take `mpirun OPTIONS`, and return what it starts."""
    given, rest = _MPI_VALUED.parse(words[1:])
    if (several := next((word for word in rest if word.text == ":"), None)) is not None:
        raise OptionError(several, _("several programs in one job: dttui starts the same one on every node"))
    launch.launchers.append("mpirun")
    program = words[0].text.rpartition("/")[2]
    for option in given:
        said = launch.take(
            f"{program} {option.name.replace('--x', '-x', 1) if option.name == '--x' else option.name}", option
        )
        if option.name == "--np":
            launch.processes = said
        elif option.name in ("--npernode", "--ppn"):
            launch.per_node = said
        elif option.name == "--map-by":
            _take_mapping(launch, said)
        elif option.name in ("--host", "--hosts"):
            _take_hosts(launch, said)
        elif option.name == "--hostfile":
            launch.hostfile = said
        elif option.name in ("--x", "--genv", "--env"):
            _take_forwarded(launch, said)
        elif option.name != "--allow-run-as-root":
            launch.leave_out(said, _("MPI's own; dttui starts the ranks itself"))
    return rest


def horovodrun(launch: Launch, words: Sequence[Word]) -> Sequence[Word]:
    """Take `horovodrun OPTIONS`, and return what it starts."""
    given, rest = _HOROVOD.parse(words[1:])
    launch.launchers.append("horovodrun")
    launch.framework, launch.is_framework_implied = "horovod", False
    slots: GivenValue | None = None
    for option in given:
        said = launch.take(f"horovodrun {option.name}", option)
        if option.name == "--num-proc":
            launch.processes = said
        elif option.name == "--hosts":
            _take_hosts(launch, said)
        elif option.name == "--hostfile":
            launch.hostfile = said
        elif option.name == "--slots":
            slots = said
        elif option.name == "--network-interfaces":
            launch.leave_out(said, _("the interface is chosen from the addresses that the nodes have"))
        elif option.name in ("--host-discovery-script", "--min-num-proc", "--max-num-proc", "--reset-limit"):
            hint = _("List the nodes under cluster.nodes, and write recovery for what happens when one is lost.")
            launch.leave_out(said, _("dttui does not run Horovod elastically"), hint, is_warning=True)
        elif option.name not in ("--gloo", "--verbose", "--start-timeout"):
            launch.leave_out(said, _("Horovod's own; dttui starts the ranks itself"))
    launch.per_node = slots or launch.per_node
    return rest


def _take_mapping(launch: Launch, said: GivenValue) -> None:
    """Take `ppr:8:node`."""
    match = re.match(r"ppr:([0-9]{1,4}):node", said.text)
    if match is None:
        launch.leave_out(said, _("MPI's own; dttui starts the ranks itself"))
    else:
        launch.per_node = GivenValue(said.key, Word(match[1], said.word.mark))


def _take_hosts(launch: Launch, said: GivenValue) -> None:
    """Take `a:4,b:4`."""
    if said.is_open:
        launch.open_hosts = said
        launch.leave_out(said, _("the hosts are not known: {value}").format(value=said.text), is_warning=True)
        return
    for part in said.text.split(","):
        name, separator, slots = part.strip().rpartition(":")
        if name in ("localhost", "127.0.0.1") and slots.isdecimal():
            launch.per_node = GivenValue(said.key, Word(slots, said.word.mark))
        elif part.strip() in ("localhost", "127.0.0.1"):
            continue
        elif separator and slots.isdecimal() and len(slots) < 5:
            launch.hosts.append((name, int(slots)))
        elif part.strip():
            launch.hosts.append((part.strip(), None))
    launch.hosts_key = said.key


def _take_forwarded(launch: Launch, said: GivenValue) -> None:
    """Take `-x NAME=VALUE`, or `-x NAME` of the environment of whoever starts it."""
    for part in said.text.split(",") if "=" not in said.text else [said.text]:
        name, separator, value = part.partition("=")
        if not name.isidentifier():
            launch.leave_out(said, _("this names no variable"))
        elif separator:
            launch.environment[name] = Word(value, said.word.mark, said.word.holes)
        elif name not in launch.environment:
            hint = _("Write run.env.{name}, or name it under run.secrets.").format(name=name)
            launch.leave_out(said, _("each host has its own {name}").format(name=name), hint)
