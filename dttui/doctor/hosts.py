"""What is wrong with one host, by what it said of itself. Pure: answers in, troubles out."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dtagent.protocol.facts import HostFacts, PythonFacts, UserLimits
from dtagent.protocol.probes import PathsReply, PathState

from dttui.agent_words import agent_text
from dttui.doctor.examination import Examined
from dttui.doctor.models import Remedy, Site, Trouble
from dttui.doctor.remedies import MOST_FILES, MOST_PROCESSES, Remedies, torch_index
from dttui.errors import REFUSALS, AgentGoneError, HostError, HostKeyError, OutOfTimeError
from dttui.i18n import _, joined
from dttui.inventory.models import Reach
from dttui.planning.models import PlannedNode
from dttui.preflight.hosts import judge_agent, judge_clock, judge_health, judge_limits, judge_room
from dttui.preflight.node_reachability import is_loopback
from dttui.sanitize import clean
from dttui.spec.findings import Finding, error, info, warning

SLOW_LOOKUP_S = 1.0
"""A name that is there answers in milliseconds."""
SLOW_LOGIN_S = 5.0
"""Until a command runs; a cold Python on a busy host takes two."""
SESSIONS_WANTED, STARTUPS_WANTED = 4, 10
"""Of an SSH server: dttui has a session for the agent and one for what it sends; it dials that many at once."""


def judge_unreached(host: HostError, name: str, options: Sequence[str]) -> Trouble:
    """Say why nothing could be asked of a host."""
    remedies = Remedies(name, "", tuple(options))
    commands: tuple[Remedy, ...] = ()
    code = "unreachable"
    if isinstance(host, HostKeyError):
        code = "host-key"
        if host.fingerprint:
            commands = (remedies.dttui("envs", "trust"),)
    elif isinstance(host, REFUSALS):
        code = "refused"
    elif isinstance(host, AgentGoneError):
        code = "no-agent"
        commands = (remedies.dttui("agents", "deploy"),)
    elif isinstance(host, OutOfTimeError):
        code = "unchecked"
    return Trouble(Site.HOST, error(code, name, host.message, host.hint), commands)


def judge_host(
    told: Examined, node: PlannedNode | None, world_size: int, offsets: Sequence[float], options: Sequence[str]
) -> Iterator[Trouble]:
    """Yield what is wrong with a host.

    Args:
        told: what it said.
        node: it in a job on all hosts; `None` where none can be planned for it.
        world_size: of that job.
        offsets: of the clocks of all hosts.
        options: what dttui was called with, for commands.
    """
    remedies = Remedies(told.name, told.seen.user, tuple(options))
    yield from _agent(told, remedies)
    yield from _names(told, remedies)
    yield from _ssh(told, remedies)
    clock = judge_clock(told.name, told.offset_s, 2 * told.offset_within_s, offsets)
    yield from _with(
        clock.findings, {"clock-skew": (remedies.as_root("chronyc -a makestep || ntpdate -u pool.ntp.org"),)}
    )
    facts = told.facts or _poor_facts(told)
    root = told.agent.seen.probe.root if told.agent is not None and told.has_daemon else None
    if node is not None:
        limits = _lowest(facts.limits, told.seen.user_limits)
        judged = judge_limits(node, replace(facts, limits=limits), world_size)
        yield from _with(
            judged.findings,
            {
                "nofile-low": remedies.raise_limit("nofile", str(MOST_FILES), root),
                "nproc-low": remedies.raise_limit("nproc", str(MOST_PROCESSES), root),
                "memlock-low": remedies.raise_limit("memlock", "unlimited", root),
                "logout-kills": (remedies.there(f"loginctl enable-linger {told.seen.user}"),),
            },
        )
        room = {"shm-small": (remedies.enlarge_shm(),), "disk-low": (remedies.show_use(told.mount),)}
        yield from _with(judge_room(node, facts, _paths(told), None).findings, room)
        if told.sample is not None:
            gpus = ("gpu-error", "gpu-recovery", "gpu-memory", "gpu-ecc", "gpu-throttled")
            errors = {**dict.fromkeys(gpus, (remedies.show_gpus(),)), "gpu-xid": (remedies.show_xids(),)}
            yield from _with(judge_health(node, facts, told.sample).findings, errors)
    if told.facts is not None:
        yield from _software(told, told.facts, remedies)
        yield from _interfaces(told, told.facts, remedies)


def unasked(told: Examined) -> tuple[str, ...]:
    """Return in words what could not be asked of a host."""
    found = []
    if told.facts is None:
        found.append(_("GPUs, driver, interpreters and network interfaces: no agent runs there"))
    if not told.can_serve:
        found.append(_("the network to others: no agent runs there"))
    return tuple(found)


def _agent(told: Examined, remedies: Remedies) -> Iterator[Trouble]:
    name, deploy = told.name, (remedies.dttui("agents", "deploy"),)
    if told.refusal is not None:
        yield Trouble(Site.HOST, error("agent-root", name, told.refusal.message, told.refusal.hint))
    if told.silence is not None:
        stop = remedies.restart_agent(told.agent.seen.probe.root) if told.agent is not None else ()
        yield Trouble(Site.HOST, error("agent-silent", name, told.silence.message, told.silence.hint), stop)
    if told.agent is None:
        return
    probe = told.agent.seen.probe
    if not probe.executable_mount:
        message = _("{host}: nothing can be executed at {path}: {mount} is mounted noexec")
        message = message.format(host=name, path=clean(probe.root), mount=clean(told.mount))
        hint = _("Or name a directory elsewhere in the inventory: agent_root: /path/to/directory")
        remount = remedies.as_root(f"mount -o remount,exec {shlex.quote(told.mount)}")
        yield Trouble(Site.HOST, error("agent-noexec", name, message, hint), (remount,))
        if told.agent.state == "broken":
            return  # That is why.
    if told.agent.state == "none" and not told.is_embedded:
        message = _("{host}: there is no agent").format(host=name)
        yield Trouble(Site.HOST, error("agent-missing", name, message), deploy)
    elif told.agent.state == "broken":
        said = clean(probe.broken).strip().splitlines()[-1:] or ["–"]
        message = _("{host}: the agent does not run: {reason}").format(host=name, reason=said[0])
        yield Trouble(Site.HOST, error("agent-broken", name, message), deploy)
    elif told.agent.state == "outdated":
        found = judge_agent(name, probe.version or "–").findings
        if not found:
            message = _("{host}: the agent is of this version, but has other files than this dttui's")
            found = (warning("agent-version", name, message.format(host=name)),)
        yield from _with(found, {"agent-version": (remedies.dttui("agents", "upgrade"),)})
    elif told.agent.seen.daemon is not None and told.agent.seen.daemon.digest not in (None, probe.current):
        message = _("{host}: the daemon that serves there is of an older version than the agent").format(host=name)
        yield Trouble(Site.HOST, warning("agent-daemon-old", name, message), remedies.restart_agent(probe.root))


def _names(told: Examined, remedies: Remedies) -> Iterator[Trouble]:
    name, seen = told.name, told.seen
    own = clean(seen.hostname)
    if seen.loopback_lines and not is_loopback(told.address):
        message = _("{host}: /etc/hosts gives its own name, {name}, the loopback address {ip}: others told that reach "
                    "themselves")  # fmt: skip
        message = message.format(host=name, name=own, ip=clean(", ".join(dict.fromkeys(seen.loopback_lines))))
        hint = _("gloo, MPI and frameworks that ask for the host's own address take that one.")
        command = remedies.own_name(seen.hostname, told.address)
        yield Trouble(Site.HOST, warning("own-name-loopback", name, message, hint), (command,))
    elif seen.own_name_s >= SLOW_LOOKUP_S:
        message = _(
            "{host}: looking up its own name, {name}, takes {seconds:.0f} s or longer: processes start as slowly"
        )
        found = warning("own-name-slow", name, message.format(host=name, name=own, seconds=seen.own_name_s))
        yield Trouble(Site.HOST, found, (remedies.name_address(told.address, seen.hostname),))
    if seen.client_name_s is not None and seen.client_name_s >= SLOW_LOOKUP_S:
        message = _("{host}: looking up the name of {address}, where logins come from, takes {seconds:.0f} s or longer")
        message = message.format(host=name, address=clean(seen.client), seconds=seen.client_name_s)
        hint = _("Logins are as slow where its SSH server has UseDNS, and connections of some frameworks too.")
        found = warning("reverse-dns", name, message, hint)
        yield Trouble(Site.HOST, found, (remedies.name_address(seen.client, "login-node"),))
    if told.began_s >= SLOW_LOGIN_S:
        message = _("{host}: {seconds:.0f} s go by from a login until a command runs").format(
            host=name, seconds=told.began_s
        )
        hint = _(
            "Look what the files do that its shell reads at a login (~/.bashrc, ~/.zshenv), or whether a home hangs."
        )
        if told.environment.reach is Reach.EXEC:  # It reads no files of a shell's.
            hint = _("Look what takes so long in what starts commands there: {way}").format(way=told.environment.way)
        look = remedies.there("PS4='+$EPOCHREALTIME ' bash -ixc exit 2>&1 | tail -40")
        yield Trouble(Site.HOST, warning("slow-login", name, message, hint), (look,))


def _ssh(told: Examined, remedies: Remedies) -> Iterator[Trouble]:
    name = told.name
    sessions = told.seen.sshd.get("maxsessions", "")
    if sessions.isdecimal() and int(sessions) < SESSIONS_WANTED:
        message = _("{host}: its SSH server lets a connection have {count} sessions (MaxSessions)")
        found = warning("max-sessions", name, message.format(host=name, count=int(sessions)))
        yield Trouble(Site.HOST, found, (remedies.sshd_option("MaxSessions", "10"),))
    starts = told.seen.sshd.get("maxstartups", "").partition(":")[0]
    if starts.isdecimal() and int(starts) < STARTUPS_WANTED:
        message = _("{host}: its SSH server turns connections away once {count} are logging in (MaxStartups)")
        found = warning("max-startups", name, message.format(host=name, count=int(starts)))
        yield Trouble(Site.HOST, found, (remedies.sshd_option("MaxStartups", "10:30:100"),))
    for item in told.seen.loose:
        message = _("{host}: {path} can be read or changed by others (mode {mode}): SSH may refuse the key")
        message = message.format(host=name, path=clean(item.path), mode=clean(item.mode))
        line = shlex.join(["chmod", item.change, item.path])
        yield Trouble(Site.HOST, warning("ssh-permissions", name, message), (remedies.there(line),))


def _software(told: Examined, facts: HostFacts, remedies: Remedies) -> Iterator[Trouble]:
    name = told.name
    declared = told.environment.resources.gpu
    wanted = declared.count if declared is not None and not declared.simulated else 0
    if len(facts.gpus) < wanted:
        said = agent_text(facts.gpu_note, facts.gpu_note_notice)
        message = _("{host}: {count} GPUs are there, and the inventory declares {wanted}").format(
            host=name, count=len(facts.gpus), wanted=wanted
        )
        found = error("gpus-missing", name, f"{message}: {said}" if said else message)
        yield Trouble(Site.HOST, found, (remedies.there("nvidia-smi"),))
    python = next(iter(facts.pythons), None)
    if python is None:
        return
    if python.error:
        reason = agent_text(python.error, python.error_notice)
        message = _("{host}: the interpreter cannot be used: {reason}").format(host=name, reason=reason)
        hint = _("Set `python` of this environment in the inventory.")
        commands = (remedies.show_pythons(), remedies.edit_inventory())
        yield Trouble(Site.HOST, warning("python-missing", name, message, hint), commands)
        return
    yield from _torch(told, facts, python, remedies)


def _torch(told: Examined, facts: HostFacts, python: PythonFacts, remedies: Remedies) -> Iterator[Trouble]:
    name, torch = told.name, python.packages.get("torch")
    if torch is None:
        message = _("{host}: {python} has no {package}").format(host=name, python=python.path, package="torch")
        hint = _("Jobs may name another interpreter by run.python.")
        make = info if told.environment.python is None else warning
        yield Trouble(
            Site.HOST, make("torch-missing", name, message, hint), (remedies.install(python.path, ["torch"]),)
        )
        return
    driver, built = _version(facts.cuda_version), _version(python.torch_cuda)
    if not facts.gpus or told.environment.simulated:
        return
    index = torch_index(driver) if driver is not None else None
    mend = (remedies.install(python.path, ["--force-reinstall", "torch"], index),) if index else ()
    if built is None and python.torch_rocm is None:
        message = _("{host}: torch {version} of {python} is built without CUDA, and the host has GPUs").format(
            host=name, version=torch, python=python.path
        )
        yield Trouble(Site.HOST, error("torch-without-cuda", name, message), mend)
    elif built is not None and driver is not None and built[0] > driver[0]:
        # Within one major version a driver runs what was built for a later minor one.
        message = _("{host}: torch {version} is built for CUDA {built}, and driver {driver} runs CUDA {runs} at most")
        message = message.format(
            host=name,
            version=torch,
            built=python.torch_cuda,
            driver=facts.driver_version or "?",
            runs=facts.cuda_version,
        )
        hint = _("A torch for the driver's CUDA, or a newer driver.")
        yield Trouble(Site.HOST, error("torch-driver", name, message, hint), mend)


def _interfaces(told: Examined, facts: HostFacts, remedies: Remedies) -> Iterator[Trouble]:
    """Tell which of several interfaces training would take; the wrong one is an error of the inventory alone."""
    usable = {
        name: found for name, found in facts.addresses.items() if not name.startswith(("docker", "veth", "virbr"))
    }
    if len(usable) < 2 or is_loopback(told.address):
        return
    taken = next((name for name, found in usable.items() if told.address in found), None)
    shown = joined(", ", (f"{clean(name)} {clean(found[0])}" for name, found in usable.items()))
    if taken is not None:
        message = _("{host}: of several interfaces ({interfaces}) training takes {taken}").format(
            host=told.name, interfaces=shown, taken=clean(taken)
        )
        hint = _("`address` in the inventory decides; dttui sets GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME by it.")
        yield Trouble(Site.HOST, info("interfaces", told.name, message, hint))
        return
    message = _("{host}: no interface ({interfaces}) has {address}, where others would reach it").format(
        host=told.name, interfaces=shown, address=clean(told.address)
    )
    hint = _("Behind a translated address ranks cannot be reached: set `address` in the inventory to one of these.")
    commands = (remedies.show_addresses(), remedies.edit_inventory())
    yield Trouble(Site.HOST, warning("address-elsewhere", told.name, message, hint), commands)


def _paths(told: Examined) -> PathsReply:
    if told.agent is None:
        return PathsReply()
    probe = told.agent.seen.probe
    return PathsReply(root=PathState(probe.root, True, True, True, probe.free_bytes >> 20))


def _poor_facts(told: Examined) -> HostFacts:
    """Return as facts what is known of a host without an agent; what is not said of it is judged by nobody."""
    seen, agent = told.seen, told.agent
    return HostFacts(
        hostname=seen.hostname,
        user=seen.user,
        os="",
        kernel="",
        architecture="",
        boot_id="",
        booted_at=0.0,
        cpu_model="",
        cpu_count=seen.cpus,
        memory_total_mib=0,
        shm_total_mib=seen.shm_mib[0] if seen.shm_mib else None,
        logout_kills=bool(agent is not None and agent.seen.logout_kills),
    )


def _lowest(agents: UserLimits | None, logins: UserLimits) -> UserLimits:
    """Return the lower limits: those of the agent that runs, and of one that the next login starts."""
    if agents is None:
        return logins

    def lower(one: int | None, other: int | None) -> int | None:
        return min((value for value in (one, other) if value is not None), default=None)

    return UserLimits(
        lower(agents.open_files, logins.open_files),
        lower(agents.locked_memory_kib, logins.locked_memory_kib),
        lower(agents.processes, logins.processes),
    )


def _version(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return None
    return int(parts[0]), int(parts[1])


def _with(findings: Iterable[Finding], commands: Mapping[str, tuple[Remedy, ...]]) -> Iterator[Trouble]:
    for finding in findings:
        yield Trouble(Site.HOST, finding, commands.get(finding.code, ()))
