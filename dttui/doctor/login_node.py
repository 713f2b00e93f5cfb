"""What is wrong with the login node: terminal, locale, room, keys, jobs that nobody watches. Reads; changes nothing."""

from __future__ import annotations

import contextlib
import locale
import os
import resource
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dttui import jobs, locations
from dttui.doctor.models import Remedy, Site, Trouble
from dttui.doctor.remedies import Remedies
from dttui.errors import HostError, UsageError
from dttui.fleet.deployment.doctor_program import loose_files
from dttui.i18n import _, ngettext
from dttui.inventory.models import Environment
from dttui.jobs import JobDirectory
from dttui.launch.boot import entry_commands, is_brought_back
from dttui.launch.login_session import logout_kills
from dttui.launch.stop_request import controller_pid, is_halted
from dttui.preflight.hosts import DISK_NEEDED_MIB, DISK_WANTED_MIB
from dttui.sanitize import clean
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.problems import DocumentError
from dttui.transport.ssh.credentials import Credentials, LoginNeed
from dttui.variables import for_a_process, variables
from dttui.words import listed, size_text

SUBJECT = "login"
FILES_BASE, FILES_PER_HOST = 128, 4
"""A connection has a socket, and its agent's streams; a controller copies logs into files besides."""
COLOURS_WANTED = 256
MAX_NAMES = 5
_UTF8 = ("utf-8", "utf8")


def judge_login_node(
    environments: Sequence[Environment], unread: UsageError | None, options: Sequence[str]
) -> Iterator[Trouble]:
    """Yield what is wrong here. Blocking.

    Args:
        environments: the hosts of the inventory.
        unread: why the inventory cannot be read, where it cannot.
        options: what dttui was called with, for commands.
    """
    remedies = Remedies(None, locations.local_user(), tuple(options))
    yield from _inventory(unread)
    yield from _terminal()
    yield from _state(remedies)
    yield from _open_files(len(environments))
    yield from _session(remedies)
    yield from _permissions(remedies)
    yield from judge_logins(environments)
    yield from _jobs()
    yield from _boot()
    yield from _leftovers()


def judge_known_hosts(warnings: Sequence[str]) -> Iterator[Trouble]:
    """Yield what files of known hosts hold that could not be used; `warnings` are the transport's."""
    for text in warnings:
        yield _trouble(warning("known-hosts", SUBJECT, clean(text)))


def judge_logins(environments: Sequence[Environment]) -> Iterator[Trouble]:
    """Yield which keys nobody but a person can use; each key is told once, with the hosts that it is for."""
    credentials = Credentials()
    found: dict[tuple[LoginNeed, Path | None], list[str]] = {}
    for environment in environments:
        with contextlib.suppress(HostError, OSError):  # Told where it is connected to.
            login = credentials.login_to(environment)
            found.setdefault((login.need, login.key), []).append(environment.name)
    for (need, key), names in found.items():
        hosts = listed(names, MAX_NAMES)
        if need is LoginNeed.PASSPHRASE:
            message = _("the key {path} has a passphrase, and no ssh-agent holds it: each login asks for it ({hosts})")
            start = "" if variables().get("SSH_AUTH_SOCK") else 'eval "$(ssh-agent -s)" && '
            command = Remedy(f"{start}ssh-add {shlex.quote(str(key))}")
            yield _trouble(warning("key-locked", SUBJECT, message.format(path=key, hosts=hosts)), command)
        elif need is LoginNeed.PERSON:
            message = _("there is no key for {hosts}: each login asks for a password").format(hosts=hosts)
            make = Remedy("test -e ~/.ssh/id_ed25519 || ssh-keygen -t ed25519")
            first = next(item for item in environments if item.name == names[0])
            yield _trouble(warning("key-missing", SUBJECT, message), make, Remedy(_copy_id(first)))


def _copy_id(environment: Environment) -> str:
    at = f"{environment.user}@{environment.host}" if environment.user else f"{environment.host}"
    return shlex.join(["ssh-copy-id", *(["-p", str(environment.port)] if environment.port else []), at])


def _inventory(unread: UsageError | None) -> Iterator[Trouble]:
    if isinstance(unread, DocumentError):
        for problem in unread.problems:
            command = Remedy(f"${{EDITOR:-vi}} +{problem.line or 1} {shlex.quote(problem.file)}")
            yield _trouble(error("inventory", SUBJECT, str(problem)), command)
    elif unread is not None:
        yield _trouble(error("inventory", SUBJECT, unread.message, unread.hint), Remedy("dttui envs import"))


def _terminal() -> Iterator[Trouble]:
    is_terminal = sys.stdout.isatty() or sys.stderr.isatty()
    named = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := variables().get(name))), "")
    charset = named.partition(".")[2].partition("@")[0].lower()
    if (named or is_terminal) and charset not in _UTF8:
        message = _("the locale is {locale}, which is not UTF-8: what is not ASCII may be drawn wrong")
        name = clean(named) or locale.getlocale()[0] or "C"
        yield _trouble(warning("locale", SUBJECT, message.format(locale=name)), Remedy("export LC_ALL=C.UTF-8"))
    term = variables().get("TERM", "")
    if (term or is_terminal) and (colours := _colours(term)) < COLOURS_WANTED:
        command = Remedy("export TERM=xterm-256color")
        if colours == 0:
            message = _("TERM is {term}: the screen needs a terminal that moves its cursor and knows colours")
            yield _trouble(warning("terminal", SUBJECT, message.format(term=clean(term) or "–")), command)
        elif "COLORTERM" not in variables():
            message = _("TERM is {term}, with {count} colours: the screen looks better with {wanted}")
            message = message.format(term=clean(term), count=colours, wanted=COLOURS_WANTED)
            yield _trouble(info("colours", SUBJECT, message), command)


def _colours(term: str) -> int:
    """Return how many colours a kind of terminal has, as terminfo says; 0 of one that it does not know."""
    if term in ("", "dumb"):
        return 0
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        asked = subprocess.run(
            ["tput", "-T", term, "colors"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=5,
            env=for_a_process(),
            check=False,
        )
        return max(0, int(asked.stdout or 0))
    return COLOURS_WANTED  # Nobody here can tell.


def _state(remedies: Remedies) -> Iterator[Trouble]:
    """Look at where jobs are kept; what is not there yet is looked at where it would be."""
    path = locations.jobs_directory()
    there = next((place for place in (path, *path.parents) if os.path.lexists(place)), Path("/"))
    quoted = shlex.quote(str(there))
    if not there.is_dir():
        message = _("{path} is no directory: jobs cannot be kept in {jobs}").format(path=there, jobs=path)
        yield _trouble(error("state-directory", SUBJECT, message), Remedy(f"ls -ld {quoted}"))
        return
    info = there.stat()
    if not os.access(there, os.W_OK | os.X_OK):
        message = _("{path} cannot be written: no job can be started").format(path=there)
        mend = remedies.as_root(f"chown -R {shlex.quote(remedies.user)} {quoted}")
        if info.st_uid == os.getuid():
            mend = Remedy(f"chmod u+rwx {quoted}")
        yield _trouble(error("state-directory", SUBJECT, message), mend)
    elif there == path and info.st_mode & 0o077:
        message = _("{path} can be read or changed by others (mode {mode}): logs of jobs may hold what is secret")
        message = message.format(path=there, mode=f"{stat.S_IMODE(info.st_mode):04o}")
        yield _trouble(warning("state-open", SUBJECT, message), Remedy(f"chmod go= {quoted}"))
    free_mib = shutil.disk_usage(there).free >> 20
    if free_mib < DISK_WANTED_MIB:
        message = _("{free} free at {path}: logs and events of jobs are kept there")
        make = error if free_mib < DISK_NEEDED_MIB else warning
        found = make("state-room", SUBJECT, message.format(free=size_text(free_mib << 20), path=there))
        yield _trouble(found, remedies.dttui("remove", "--finished-before", "30d", "--keep", "20"))


def _open_files(hosts: int) -> Iterator[Trouble]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_BASE + FILES_PER_HOST * hosts
    highest = soft if hard == resource.RLIM_INFINITY else hard  # dttui raises the soft one to it.
    if highest == resource.RLIM_INFINITY or highest >= wanted:
        return
    message = ngettext(
        "a process may open {limit} files; for {count} host {wanted} are likely to be needed",
        "a process may open {limit} files; for {count} hosts {wanted} are likely to be needed",
        hosts,
    ).format(limit=highest, count=hosts, wanted=wanted)
    commands = Remedies(None, locations.local_user()).raise_limit("nofile", "65536", None)
    yield _trouble(warning("nofile-low", SUBJECT, message), *commands)


def _session(remedies: Remedies) -> Iterator[Trouble]:
    if logout_kills():
        message = _("systemd ends what is left running here at logout: nobody would watch jobs any more")
        line = f"loginctl enable-linger {shlex.quote(remedies.user)}"
        yield _trouble(warning("logout-kills", SUBJECT, message), Remedy(line))


def _permissions(remedies: Remedies) -> Iterator[Trouble]:
    for item in loose_files(Path.home()):
        message = _("{path} can be read or changed by others (mode {mode}): SSH may refuse the key")
        line = shlex.join(["chmod", item["change"], item["path"]])
        found = warning("ssh-permissions", SUBJECT, message.format(path=item["path"], mode=item["mode"]))
        yield _trouble(found, remedies.there(line))


def _jobs() -> Iterator[Trouble]:
    """Tell of jobs that go on and that nobody watches."""
    for summary in jobs.list_jobs():
        directory = JobDirectory.of(summary.job_id)
        silence = "" if directory.is_over() else directory.silence(time.time())
        if silence:
            message = f"{summary.job_id}: {silence}"
            pid = controller_pid(directory) if directory.has_controller() else None
            # What is halted takes no other signal but the last, and what hangs none that it handles itself.
            commands = [Remedy(f"kill {'-CONT' if is_halted(pid) else '-9'} {pid}")] if pid is not None else []
            attach = Remedy(shlex.join(["dttui", "attach", summary.job_id]))
            yield _trouble(warning("job-unwatched", SUBJECT, message), *commands, attach)


def _boot() -> Iterator[Trouble]:
    """Tell that nobody would follow jobs after a restart of this machine; it matters where some go on now."""
    if is_brought_back():
        return
    going_on = [summary.job_id for summary in jobs.list_jobs() if not summary.state.is_final]
    commands = [Remedy(line) for line in entry_commands()]
    message = _("after a restart of this machine nobody follows jobs until you call dttui")
    hint = "" if commands else _("There is neither cron nor a user's systemd here: call `dttui attach --all` then.")
    make = warning if going_on else info
    yield _trouble(make("boot", SUBJECT, message, hint), *commands)


def _leftovers() -> Iterator[Trouble]:
    """Tell of controllers whose job was removed, and of agents here whose directory is gone."""
    for path, pid in _controllers().items():
        if not path.is_dir():
            message = _("process {pid} is the controller of a job that is not there any more: {path}")
            found = warning("controller-left", SUBJECT, message.format(pid=pid, path=path))
            yield _trouble(found, Remedy(f"kill {pid}"))
    for pid, words in _own_processes():
        # One that is to end when nobody needs it will.
        if {"dtagent", "daemon"} <= {*words} and "--root" in words[:-1] and "--idle-exit" not in words:
            root = Path(words[words.index("--root") + 1])
            if not root.is_dir():
                message = _("process {pid} is an agent on this machine whose directory is gone: {path}")
                found = warning("agent-left", SUBJECT, message.format(pid=pid, path=root))
                yield _trouble(found, Remedy(f"kill {pid}"))


def _controllers() -> dict[Path, int]:
    """Return the directories of jobs that controllers of this user have, each with its process."""
    found = {}
    for pid, words in _own_processes():
        if "dttui.engine" in words:
            after = words[words.index("dttui.engine") + 1 :]
            if after and after[0].startswith("/"):
                found[Path(after[0])] = pid
    return found


def _own_processes() -> Iterator[tuple[int, list[str]]]:
    """Yield this user's processes, each with its arguments; those of containers see other files, and are left out."""
    ours = os.stat("/proc/self/ns/mnt").st_ino
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_own = process.stat().st_uid == os.getuid() and int(process.name) != os.getpid()
            if is_own and (process / "ns/mnt").stat().st_ino == ours:
                words = (process / "cmdline").read_bytes().split(b"\0")[:-1]
                yield int(process.name), [os.fsdecode(word) for word in words]


def _trouble(finding: Finding, *commands: Remedy) -> Trouble:
    return Trouble(Site.LOGIN, finding, commands)
