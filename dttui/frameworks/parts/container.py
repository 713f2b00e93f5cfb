"""Planned processes in a container: the words by which docker, podman or apptainer starts each in its image. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from dttui.frameworks.base import JobLayout, NodeLayout
from dttui.frameworks.bundle import Hole, PlannedProcess, gpu_hole
from dttui.frameworks.parts.warm_checks import check_not_in_container
from dttui.i18n import _
from dttui.spec.container import Container
from dttui.spec.findings import Finding, error, info
from dttui.spec.models import Job

ENGINES_OF_NAMES = ("docker", "podman")
"""Those that know images by name, and whose containers have names too; apptainer's are processes like any."""
HEALTH_MARK = "DTTUI_HEALTH_CHECK"
"""Variable by which the agent finds what a health check has started, `dtagent.supervision.health.MARK`."""
_OF_CLIENT = ("HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR")
"""Variables that the engine's own program goes by: the job's values are for the inside alone."""
_OURS = {
    "--detach": "-d",
    "--name": "",
    "--interactive": "-i",
    "--tty": "-t",
    "--pid": "",
    "--rm": "",
    "--cidfile": "",
}
"""Options by which a container would be no process of the job any more, and their short forms."""


def contain(process: PlannedProcess, layout: JobLayout, node: NodeLayout, paths: Sequence[str]) -> PlannedProcess:
    """Return what starts a process in the container of the job; the process itself for a job without one.

    Network, shared memory and process ids are the host's: ranks find each other, and dttui finds the ranks, as without
    a container. Of variables only the names stand in the command, since other users can read it.

    Args:
        process: as it would run on the host.
        layout: of the job.
        node: where it runs.
        paths: of the host, that the job needs.
    """
    container = layout.run.container
    if container is None:
        return process
    volumes = [_same(str(Hole.DIRECTORY)), *map(_same, _mounted(layout.job, container, paths)), *container.mounts]
    removal: tuple[str, ...] = ()
    if container.engine == "apptainer":
        words = _apptainer(process, container, node, volumes)
    else:
        words = _docker(process, container, node, volumes, layout.run.secrets)
        removal = _removal(container.engine, _name(process, node))
    return process.model_copy(
        update={
            "argv": (*words, *process.argv),
            "env": {name: value for name, value in process.env.items() if name not in _OF_CLIENT},
            "engine_words": len(words),
            "removal": removal,
        }
    )


def _of_client(process: PlannedProcess) -> dict[str, str]:
    """Return what a process has of the variables that would be the engine's, and that stand in the command."""
    return {name: value for name, value in process.env.items() if name in _OF_CLIENT}


def _apptainer(process: PlannedProcess, container: Container, node: NodeLayout, volumes: Sequence[str]) -> list[str]:
    """Return the words before those of a process by which apptainer starts it."""
    own = _of_client(process)
    gpus = ["--nv"] if _sees_gpus(process, container, node) else ["--no-nv"] if container.gpus == "none" else []
    words = ["apptainer", "exec", *gpus, f"--pwd={process.cwd}", *(f"--bind={item}" for item in volumes)]
    words += [f"--env={_field(f'{name}={value}')}" for name, value in own.items() if name != "HOME"]
    # It refuses HOME there, and --home would also mount a directory, which has to be there on the host.
    inside = ["env", f"HOME={own['HOME']}"] if "HOME" in own else []
    return [*words, *container.options, container.image, *inside]


def _docker(
    process: PlannedProcess, container: Container, node: NodeLayout, volumes: Sequence[str], secrets: Sequence[str]
) -> list[str]:
    """Return the words before those of a process by which docker, or podman, starts it."""
    words = [container.engine, "run", "--rm", "--pull=never", f"--name={_name(process, node)}", *_labels(node)]
    # The process numbers of the host: telemetry tells by them what each rank uses, and a stop whom to end. Its init
    # takes what is orphaned inside, too, so there is no --init.
    words += ["--network=host", "--ipc=host", "--pid=host", *_user(container)]
    words += [*(_gpus(container, node) if _sees_gpus(process, container, node) else ()), *_rdma(process)]
    words += [f"--workdir={process.cwd}", *(f"--volume={item}" for item in volumes)]
    # The image may know no user of that number, and so neither a home nor a name.
    own = {"HOME": str(Hole.DIRECTORY), "LOGNAME": "dttui", **_of_client(process)}
    if container.gpus == "none":
        # Else what is a default runtime of the host, and goes by what many images say of themselves, gives all.
        own = {"NVIDIA_VISIBLE_DEVICES": "void", **own}
    elif container.gpus == "node" and process.env.get("CUDA_VISIBLE_DEVICES") == str(Hole.GPU_IDS):
        # Inside there are only those, counted from 0 in the order of the bus, whatever order they are asked for in.
        order = sorted(node.gpu_ids)
        inside = [order.index(index) for index in node.gpu_ids] or range(node.cuda_slots)
        own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, inside))
    words += [f"--env={name}" for name in (*process.env, *secrets) if name not in own]
    words += [f"--env={name}={value}" for name, value in own.items()]
    return [*words, *container.options, container.image]


def beside(process: PlannedProcess, command: Sequence[str], layout: JobLayout, node: NodeLayout) -> tuple[str, ...]:
    """Return the words that run a command where a process runs: in its container, where it has one.

    Args:
        process: as `contain` gives it.
        command: what is run besides.
        layout: of the job.
        node: where it runs.
    """
    container = layout.run.container
    if container is None or not process.engine_words:
        return tuple(command)
    if container.engine == "apptainer":  # Its containers have no names, and another of the image costs little.
        return (*process.argv[: process.engine_words], *command)
    own = [f"--env={HEALTH_MARK}", f"--workdir={process.cwd}"]
    return (container.engine, "exec", *own, _name(process, node), *command)


def with_checkpoint(process: PlannedProcess, variable: str, path: str, directory: str) -> PlannedProcess:
    """Return a process whose container has what an attempt goes on from.

    Args:
        process: as `contain` gives it; one on the host itself stays as it is.
        variable: of its environment, by which it is told.
        path: of the checkpoint on the host.
        directory: on the host, that the path is below.
    """
    if not process.engine_words:
        return process
    engine, command, *rest = process.argv
    option = "--bind" if engine == "apptainer" else "--volume"
    starts = (word.partition("=") for word in process.argv[: process.engine_words])
    seen = [value.split(":")[1].rstrip("/") for name, _equals, value in starts if name == option and ":" in value]
    is_seen = any(path == other or path.startswith(f"{other}/") for other in seen)
    # Before the others: the attempt's own directory may be below it.
    added = [] if is_seen else [f"{option}={_same(directory)}"]
    added += [] if engine == "apptainer" else [f"--env={variable}"]  # That one hands on all of its own.
    argv = (engine, command, *added, *rest)
    return process.model_copy(update={"argv": argv, "engine_words": process.engine_words + len(added)})


def without_container(process: PlannedProcess) -> PlannedProcess:
    """Return a process as it runs inside of an image that something else starts."""
    argv = process.argv[process.engine_words :]
    return process.model_copy(update={"argv": argv, "engine_words": 0, "removal": ()})


def check_container(job: Job, paths: Sequence[str], *, uses_gpus: bool) -> list[Finding]:
    """Return what in `run` does not go with a container.

    Args:
        job: the job.
        paths: of the hosts, that it needs.
        uses_gpus: whether it uses any GPU that is none of simulation's.
    """
    container = job.run.container if job.run is not None else None
    if job.run is None or container is None:
        return []
    found = [*_faults(container, _mounted(job, container, paths)), *check_not_in_container(job.run)]
    if uses_gpus and container.gpus == "none":
        message = _("the job uses GPUs of its nodes, and run.container.gpus hides them all")
        hint = _("Leave it out, or set resources.gpu.count of the nodes to 0.")
        found.append(error("container-gpus", "run.container.gpus", message, hint))
    if container.engine == "apptainer" and "://" in container.image:
        message = _("each host fetches {image} when the job starts, unless it has it already")
        hint = _("For a start without waiting: apptainer pull there, and write the path of the file.")
        found.append(info("container-fetch", "run.container.image", message.format(image=container.image), hint))
    return found


def _faults(container: Container, mounted: Iterable[str]) -> Iterator[Finding]:
    if container.engine != "apptainer" and (container.image.startswith("/") or "://" in container.image):
        message = _("{engine} knows images by name, and {image} is none")
        message = message.format(engine=container.engine, image=container.image)
        hint = _("Write it as in pytorch/pytorch:2.9.0, or choose engine: apptainer.")
        yield error("container-image", "run.container.image", message, hint)
    targets = [item.split(":")[1] for item in container.mounts]
    for index, target in enumerate(targets):
        if target in targets[:index]:
            message = _("two mounts lead to {path}").format(path=target)
            path = ("run", "container", "mounts", index)
            yield error("container-mount", "run.container.mounts", message, _("Leave one of them out."), path=path)
    for item in mounted:
        if ":" in item or "," in item:
            message = _("{path} cannot be seen in a container: engines split at colons and commas").format(path=item)
            hint = _("Rename it, or give another path by a link.")
            yield error("container-path", "run.container", message, hint)
    for index, option in enumerate(container.options):
        name = option.partition("=")[0]
        if name in _OURS or name in filter(None, _OURS.values()):
            message = _("{option} is not the job's to set: dttui follows and ends the container by it")
            path = ("run", "container", "options", index)
            subject = "run.container.options"
            yield error("container-option", subject, message.format(option=name), _("Leave it out."), path=path)


def _mounted(job: Job, container: Container, paths: Iterable[str]) -> list[str]:
    """Return the job's own paths that the container has to see, none below another or below a mount of the job."""
    checkpoint = job.recovery.checkpoint
    wanted = {*paths, *([posixpath.normpath(checkpoint.dir)] if checkpoint and checkpoint.dir.startswith("/") else [])}
    seen = [item.split(":")[1].rstrip("/") for item in container.mounts]
    found: list[str] = []
    for path in sorted(wanted, key=lambda path: (path.count("/"), path)):
        if not any(path == other or path.startswith(f"{other}/") for other in (*seen, *found)):
            found.append(path)
    return found


def _name(process: PlannedProcess, node: NodeLayout) -> str:
    return f"dttui-{Hole.JOB_ID}-{Hole.ATTEMPT}-{node.node_rank}-{process.name}"


def _same(path: str) -> str:
    return f"{path}:{path}"


def _field(text: str) -> str:
    """Return a variable as apptainer reads it: with a second equals sign in it, as a line of comma-separated values."""
    return '"' + text.replace('"', '""') + '"' if text.count("=") > 1 else text


def _labels(node: NodeLayout) -> list[str]:
    told = {"job": str(Hole.JOB_ID), "attempt": str(Hole.ATTEMPT), "node_rank": str(node.node_rank)}
    return [f"--label=dttui.{name}={value}" for name, value in told.items()]


def _user(container: Container) -> list[str]:
    """Return what makes files belong to the agent's user: in podman that is whom root of the inside stands for."""
    if container.engine == "podman":
        # --userns=keep-id would do as well, but is refused to root and copies the image once for each user.
        return ["--user=0:0", "--security-opt=label=disable"]
    return [f"--user={Hole.USER_IDS}"]


def _sees_gpus(process: PlannedProcess, container: Container, node: NodeLayout) -> bool:
    """Whether it is to have any: what serves parameters or hands out work hides all of them from itself."""
    return node.cuda_slots > 0 and container.gpus != "none" and process.env.get("CUDA_VISIBLE_DEVICES") != ""


def _rdma(process: PlannedProcess) -> list[str]:
    """Return what lets NCCL use the ports that it is told of: their devices, and memory that is never swapped out."""
    return ["--device=/dev/infiniband", "--ulimit=memlock=-1"] if "NCCL_IB_HCA" in process.env else []


def _gpus(container: Container, node: NodeLayout) -> list[str]:
    if container.engine == "podman":
        every = ["all"] if container.gpus == "all" else [f"${{{gpu_hole(index)}}}" for index in range(node.cuda_slots)]
        return [f"--device=nvidia.com/gpu={item}" for item in every]
    # Quotes of its own: without them docker takes the comma for the end of the devices.
    return ["--gpus=all" if container.gpus == "all" else f'--gpus="device={Hole.GPU_IDS}"']


def _removal(engine: str, name: str) -> tuple[str, ...]:
    own = ("--ignore", "--time=0") if engine == "podman" else ()
    return (engine, "rm", "--force", *own, name)
