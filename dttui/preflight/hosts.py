"""What a host's facts, sample and answers say before a job starts there: health, room, limits, clock, paths. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from dtagent.protocol.facts import HostFacts
from dtagent.protocol.probes import PathsReply, PathState
from dtagent.protocol.sentences import HELD_BACK
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui import __version__
from dttui.agent_words import agent_term, agent_text
from dttui.frameworks.parts.elastic import MOST_CLOCK_SKEW_S
from dttui.i18n import _, joined, ngettext
from dttui.jobs.board import Judgement
from dttui.jobs.checks import Check, CheckStatus
from dttui.launch.command_line import needs_on_host
from dttui.planning.models import Finding, PlannedNode
from dttui.preflight.software import check_logout
from dttui.sanitize import clean
from dttui.spec.findings import error, warning

DISK_NEEDED_MIB = 64
"""Without so much the agent could not keep its journal, let alone logs."""
DISK_WANTED_MIB = 1024
SHM_WANTED_MIB = 256
"""Data loaders and NCCL pass memory through /dev/shm; a container has 64 where nobody said more."""
OPEN_FILES_BASE, OPEN_FILES_PER_RANK = 256, 4
"""A process opens its libraries and files, and some sockets to each other rank."""
PROCESSES_BASE, PROCESSES_PER_RANK = 256, 64
"""Threads count: loaders, OpenMP, NCCL."""
LOCKED_MEMORY_WANTED_KIB = 64 * 1024
"""RDMA registers its buffers in locked memory."""
CLOCK_WANTED_S = 1.0


@dataclass(frozen=True)
class HostAnswers:
    """What a host has said of itself so far; `None` for what it has not said yet."""

    node: PlannedNode
    """The job's node there."""
    world_size: int
    checkpoints: str | None
    """Directory of the job's checkpoints there."""
    checkpoint_bytes: int | None
    """What they take there, as far as that is known."""
    facts: HostFacts | None
    sample: HostSample | None
    paths: PathsReply | None


def judge_answers(told: HostAnswers) -> dict[Check, Judgement]:
    """Return what can be judged by now of what a host says of itself."""
    node, facts, sample, paths = told.node, told.facts, told.sample, told.paths
    found: dict[Check, Judgement] = {}
    if facts is not None:
        found[Check.LIMITS] = judge_limits(node, facts, told.world_size)
    if facts is not None and sample is not None:
        found[Check.HEALTH] = judge_health(node, facts, sample)
    if facts is not None and paths is not None:
        found[Check.ROOM] = judge_room(node, facts, paths, told.checkpoints, told.checkpoint_bytes)
    if paths is not None:
        found[Check.PATHS] = judge_paths(node, paths)
    return found


def judge_agent(name: str, version: str, lacks: Sequence[Finding] = ()) -> Judgement:
    """Compare an agent with this dttui, which would have brought the one of its own version there.

    Args:
        name: of the host.
        version: of the agent.
        lacks: what it cannot do and the job needs.
    """
    shown = clean(version)
    if lacks:
        return Judgement(shown, tuple(lacks))
    if version == __version__:
        return Judgement(shown)
    message = _("{host}: the agent is {version}, and dttui {own}").format(host=name, version=shown, own=__version__)
    hint = _("Upgrade the agent: dttui agents deploy {host}").format(host=name)
    return Judgement(shown, (warning("agent-version", name, message, hint),))


def judge_health(node: PlannedNode, facts: HostFacts, sample: HostSample) -> Judgement:
    """Say whether the GPUs that the job gets report errors; `unknown` where one does not tell all kinds of them."""
    name = node.name
    if not facts.gpus:
        return Judgement(_("no GPUs"), status=CheckStatus.NONE)
    if not sample.gpus:
        said = agent_text(facts.gpu_note, facts.gpu_note_notice)
        return Judgement(said or _("the driver says nothing"), status=CheckStatus.UNKNOWN)
    gpus = _of_the_job(node, sample)
    if not gpus:
        return Judgement(_("none used"), status=CheckStatus.NONE)
    found, untold = _gpu_findings(name, gpus), _untold(gpus)
    if untold:
        return Judgement(_("not told: {what}").format(what=untold), tuple(found), CheckStatus.UNKNOWN)
    return Judgement(_("no errors") if not found else "", tuple(found))


def judge_room(
    node: PlannedNode, facts: HostFacts, reply: PathsReply, checkpoints: str | None, wanted_bytes: int | None = None
) -> Judgement:
    """Say whether the disks have room for logs and checkpoints, and shared memory for the ranks."""
    name, found, told = node.name, [], []
    root = reply.root
    if root is not None and root.free_mib is not None:
        told.append(_("disk {free}").format(free=_size(root.free_mib)))
        found += _disk(name, root.path, root.free_mib, _("the agent keeps logs and what is sent there"))
    place = next((item for item in reply.paths if item.path == checkpoints), None)
    if place is not None:
        if place.free_mib is not None:
            told.append(_("checkpoints {free}").format(free=_size(place.free_mib)))
            found += _disk(name, place.path, place.free_mib, _("checkpoints go there"))
            if wanted_bytes is not None and place.free_mib < wanted_bytes >> 20:
                message = _("{host}: the checkpoints that stay take about {wanted}, and {path} has {free}").format(
                    host=name, wanted=_size(wanted_bytes >> 20), path=place.path, free=_size(place.free_mib)
                )
                hint = _("Make room, keep fewer (recovery.checkpoint.keep), or choose another recovery.checkpoint.dir.")
                found.append(warning("checkpoint-room", name, message, hint))
        if place.is_writable is False:
            message = _("{host}: checkpoints cannot be written to {path}").format(host=name, path=place.path)
            hint = _("Choose another recovery.checkpoint.dir, or make it writable.")
            found.append(error("checkpoint-unwritable", name, message, hint))
    for item in reply.paths:
        wanted_mib = node.required_room.get(item.path, 0) >> 20
        if item.free_mib is not None and item.free_mib < wanted_mib:
            message = _("{host}: {path} has {free} free, and resources.storage asks for {wanted}").format(
                host=name, path=item.path, free=_size(item.free_mib), wanted=_size(wanted_mib)
            )
            found.append(error("storage-room", name, message, _("Make room there, or ask for less.")))
    if facts.shm_total_mib is not None:
        told.append(_("shm {size}").format(size=_size(facts.shm_total_mib)))
        if facts.shm_total_mib < SHM_WANTED_MIB:
            message = _("{host}: /dev/shm has {size}; data loaders and NCCL may run out of it")
            hint = _("Give a container more: --shm-size=8g or --ipc=host.")
            found.append(warning("shm-small", name, message.format(host=name, size=_size(facts.shm_total_mib)), hint))
    return Judgement(joined(" · ", told), tuple(found), CheckStatus.OK if told else CheckStatus.UNKNOWN)


def judge_limits(node: PlannedNode, facts: HostFacts, world_size: int) -> Judgement:
    """Say whether a job may open the files, start the processes and lock the memory it needs, and outlive a logout."""
    name, limits = node.name, facts.limits
    found = check_logout(node, facts)
    if limits is None:
        return Judgement("", tuple(found), CheckStatus.UNKNOWN)
    files = OPEN_FILES_BASE + OPEN_FILES_PER_RANK * world_size
    if limits.open_files is not None and limits.open_files < files:
        message = _("{host}: a process may open {limit} files; {wanted} are likely to be needed")
        message = message.format(host=name, limit=limits.open_files, wanted=files)
        hint = _(
            "Raise it there (nofile in /etc/security/limits.conf, --ulimit=nofile of a container), then: "
            "dttui agents deploy {host}"
        )
        found.append(warning("nofile-low", name, message, hint.format(host=name)))
    processes = PROCESSES_BASE + PROCESSES_PER_RANK * node.slots
    if limits.processes is not None and limits.processes < processes and facts.user != "root":
        message = _("{host}: the user may have {limit} processes and threads; {wanted} are likely to be needed")
        message = message.format(host=name, limit=limits.processes, wanted=processes)
        hint = _(
            "Raise it there (nproc in /etc/security/limits.conf, --ulimit=nproc of a container), then: "
            "dttui agents deploy {host}"
        )
        found.append(warning("nproc-low", name, message, hint.format(host=name)))
    uses_rdma = node.cuda_slots and any(port.state == "ACTIVE" for port in facts.rdma or ())
    if uses_rdma and limits.locked_memory_kib is not None and limits.locked_memory_kib < LOCKED_MEMORY_WANTED_KIB:
        message = _("{host}: a process may lock {size}; RDMA needs more").format(
            host=name, size=_size(limits.locked_memory_kib // 1024)
        )
        hint = _(
            "Raise it there (memlock unlimited in /etc/security/limits.conf, --ulimit=memlock=-1 of a container), "
            "then: dttui agents deploy {host}"
        )
        found.append(warning("memlock-low", name, message, hint.format(host=name)))
    told = "∞" if limits.open_files is None else str(limits.open_files)
    return Judgement(_("{count} files").format(count=told), tuple(found))


def judge_clock(
    name: str, offset_s: float, round_trip_s: float, everyone: Sequence[float], *, min_nodes: int | None = None
) -> Judgement:
    """Compare a host's clock with what most clocks say, the login node's among them.

    Args:
        name: of the node.
        offset_s: its clock minus the login node's.
        round_trip_s: of the measurement; half of it is the uncertainty.
        everyone: offsets of all nodes.
        min_nodes: with how many an elastic job goes on, whose clocks torchrun will compare; `None` for any other.
    """
    text = f"{_span(offset_s)} ± {_span(round_trip_s / 2).lstrip('+')}"
    skew_s = offset_s - median([0.0, *everyone])
    if abs(skew_s) - round_trip_s / 2 <= CLOCK_WANTED_S:
        return Judgement(text)
    message = _("{host}: its clock is off by {skew}").format(host=name, skew=_span(skew_s))
    if min_nodes is not None and abs(skew_s) - round_trip_s / 2 > MOST_CLOCK_SKEW_S:
        why = _("An elastic job takes a host for dead by its clock: let NTP or chrony set it, or leave elastic out.")
        return Judgement(text, (error("elastic-clock", name, message, why),))
    hint = _("Let NTP or chrony set it: logs of several hosts are hard to compare, and certificates may fail.")
    return Judgement(text, (warning("clock-skew", name, message, hint),))


def judge_paths(node: PlannedNode, reply: PathsReply) -> Judgement:
    """Say whether everything that the job needs on the host is there: work directory, script, dataset, storage."""
    name = node.name
    programs, files = needs_on_host(node.processes[0]) if node.processes else ((), ())
    found: list[Finding] = []
    for program in reply.missing_programs or ():
        if program in programs:
            found.append(_no_program(name, program))
    for item in reply.paths:
        if item.path in files and item.path not in node.required_paths and item.exists is False:
            message = _("{host}: there is no {path}, which run.command needs").format(host=name, path=item.path)
            hint = _("Put it there, or correct run.command; where the job makes it first, ignore command-missing.")
            found.append(error("command-missing", name, message, hint))
    wanted = [item for item in reply.paths if item.path in node.required_paths]
    if not node.required_paths:
        status = CheckStatus.OK if programs or files else CheckStatus.NONE
        text = _("all is sent with the job") if not files else _("{count} looked at").format(count=len(files))
        return Judgement(text, tuple(found), status)
    for item in wanted:
        if item.exists is False:
            message = _("{host}: there is no {path}").format(host=name, path=item.path)
            hint = _("Put it there, or correct the path in the job; a relative run.workdir is sent to every host.")
            found.append(error("path-missing", name, message, hint))
        elif item.exists is None:
            found.append(_unknown_path(name, item))
    there = sum(item.exists is True for item in wanted)
    return Judgement(_("{count} of {all} there").format(count=there, all=len(node.required_paths)), tuple(found))


def _no_program(name: str, program: str) -> Finding:
    if program.startswith("/"):
        message = _("{host}: there is no program {program}, or it is not executable")
        hint = _("Put it there, or correct run.command and run.prefix.")
    else:
        message = _("{host}: there is no program {program} on the PATH of jobs there")
        hint = _("Install it, write its whole path, or set PATH below run.env.")
    return error("command-missing", name, message.format(host=name, program=program), hint)


def _unknown_path(name: str, item: PathState) -> Finding:
    message = _("{host}: {path} cannot be looked at: {reason}")
    reason = agent_text(item.detail, item.detail_notice) or _("unknown")
    message = message.format(host=name, path=item.path, reason=reason)
    return warning("path-unknown", name, message, _("A network disk that hangs, or no permission: look there."))


def _of_the_job(node: PlannedNode, sample: HostSample) -> list[GpuSample]:
    """Return the GPUs that the agent would give the job now: those it names, or any; all where too few are free."""
    if node.gpu_ids:
        return [gpu for gpu in sample.gpus if gpu.index in node.gpu_ids]
    free = [gpu for gpu in sample.gpus if not gpu.processes and not gpu.error]
    return free[: node.cuda_slots] if len(free) >= node.cuda_slots else list(sample.gpus)


def _gpu_findings(name: str, gpus: Sequence[GpuSample]) -> list[Finding]:
    """Return one finding for all GPUs of which the same is to be said."""
    alike: dict[tuple[str, str], list[GpuSample]] = {}
    for gpu in gpus:
        for trouble in _troubles(gpu):
            alike.setdefault(trouble, []).append(gpu)
    return [_gpu_finding(name, code, detail, found) for (code, detail), found in alike.items()]


def _troubles(gpu: GpuSample) -> Iterator[tuple[str, str]]:
    """Yield codes, each with what else has to be equal for GPUs to be told of together."""
    if gpu.error:
        yield "gpu-error", agent_text(gpu.error, gpu.error_notice)
    if gpu.recovery_action is not None and gpu.recovery_action != "none":
        yield "gpu-recovery", agent_term(gpu.recovery_action, gpu.recovery_action_notice)
    if gpu.memory_repair_failed:
        yield "gpu-memory", "failed"
    elif gpu.memory_repair_pending:
        yield "gpu-memory", "pending"
    if gpu.ecc_uncorrected:
        yield "gpu-ecc", ""
    if gpu.xid_count:
        yield "gpu-xid", str(gpu.xid_last)
    if held_back := sorted(HELD_BACK.intersection(gpu.throttle_reasons or ())):
        yield "gpu-throttled", joined(", ", map(agent_term, held_back))


def _gpu_finding(name: str, code: str, detail: str, gpus: Sequence[GpuSample]) -> Finding:
    numbers = _ranges([gpu.index for gpu in gpus])
    who = ngettext("{host}: GPU {numbers}", "{host}: GPUs {numbers}", len(gpus)).format(host=name, numbers=numbers)
    if code == "gpu-error":
        return error(code, name, who + ": " + detail, _("Leave this host out, or reset the GPU."))
    if code == "gpu-recovery":
        message = _("{gpu}: the driver wants this done: {action}").format(gpu=who, action=detail)
        return error(code, name, message, _("Ask the host's administrator, or leave this host out."))
    if code == "gpu-memory" and detail == "failed":
        message = _("{gpu}: its memory cannot be repaired any more").format(gpu=who)
        return error(code, name, message, _("The GPU should be exchanged; leave this host out."))
    if code == "gpu-memory":
        message = _("{gpu}: rows of its memory wait to be replaced").format(gpu=who)
        return warning(code, name, message, _("Reset the GPU when nothing runs on it."))
    if code == "gpu-ecc":
        count = sum(gpu.ecc_uncorrected or 0 for gpu in gpus)
        message = ngettext(
            "{gpu}: {count} uncorrected memory error since the driver was loaded",
            "{gpu}: {count} uncorrected memory errors since the driver was loaded",
            count,
        ).format(gpu=who, count=count)
        return warning(code, name, message, _("A job there may fail; reset the GPU when nothing runs on it."))
    if code == "gpu-xid":
        message = _("{gpu}: the driver has reported Xid {number}").format(gpu=who, number=detail)
        return warning(code, name, message, _("NVIDIA's Xid catalogue says what it means."))
    message = _("{gpu}: held back: {reasons}").format(gpu=who, reasons=detail)
    return warning(code, name, message, _("All ranks wait for the slowest; look at its cooling."))


def _ranges(numbers: Sequence[int]) -> str:
    """Return `0–3, 6` for 0, 1, 2, 3 and 6."""
    ordered = sorted(numbers)
    firsts = [number for number in ordered if number - 1 not in ordered]
    lasts = [number for number in ordered if number + 1 not in ordered]
    return ", ".join(
        f"{first}–{last}" if last > first else str(first) for first, last in zip(firsts, lasts, strict=True)
    )


def _untold(gpus: Sequence[GpuSample]) -> str:
    """Return the kinds of error of which the driver says nothing, each with the GPUs that it says nothing of."""
    kinds = {
        "ECC": [gpu.index for gpu in gpus if gpu.ecc_uncorrected is None and not gpu.error],
        "Xid": [gpu.index for gpu in gpus if gpu.xid_count is None and not gpu.error],
        _("throttling"): [gpu.index for gpu in gpus if gpu.throttle_reasons is None and not gpu.error],
    }
    whole = [kind for kind, indices in kinds.items() if len(indices) == len(gpus)]
    parts = [
        ngettext("{kind} of GPU {numbers}", "{kind} of GPUs {numbers}", len(indices)).format(
            kind=kind, numbers=_ranges(indices)
        )
        for kind, indices in kinds.items()
        if indices and kind not in whole
    ]
    return joined(", ", [*whole, *parts])


def _disk(name: str, path: str, free_mib: int, why: str) -> list[Finding]:
    if free_mib >= DISK_WANTED_MIB:
        return []
    message = _("{host}: {free} free at {path}: {why}").format(host=name, free=_size(free_mib), path=path, why=why)
    make = error if free_mib < DISK_NEEDED_MIB else warning
    return [make("disk-low", name, message, _("Free some room there."))]


def _size(mib: int) -> str:
    size = mib * (1 << 20) / 1e9
    return f"{size * 1000:.0f} MB" if size < 1 else f"{size:.1f} GB" if size < 10 else f"{size:.0f} GB"


def _span(seconds: float) -> str:
    for least, factor, unit in ((1.0, 1.0, "s"), (1e-4, 1e3, "ms")):
        if abs(seconds) >= least:
            return f"{seconds * factor:+.1f} {unit}"
    return f"{seconds * 1e6:+.0f} µs"
