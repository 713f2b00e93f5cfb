"""The plan of a job with all that can be checked on this machine: what is sent, the script in it, secrets, programs."""

from __future__ import annotations

import os
import posixpath
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dtagent.protocol.facts import HostFacts

from dttui.errors import UsageError
from dttui.fleet.known_hardware import KnownHardware, known_hardware
from dttui.frameworks import traits_of
from dttui.i18n import _
from dttui.launch.command_line import files_of
from dttui.launch.needed_modules import needed_modules
from dttui.launch.own_launchers import check_launchers
from dttui.launch.script_imports import check_imports, check_resuming, check_sharing, is_without
from dttui.launch.secrets_file import FILE_NAME, SecretsFile, read_secrets
from dttui.planning.candidates import check_unqueued
from dttui.planning.costing import Costed
from dttui.planning.models import Finding, Plan
from dttui.planning.planner import plan as make_plan
from dttui.planning.submission import Submission
from dttui.redaction import MIN_LENGTH, is_known
from dttui.spec import dump_job
from dttui.spec.findings import error, errors_first, info, warning
from dttui.spec.hub_config import with_config
from dttui.spec.key_places import with_places
from dttui.spec.models import Job, Run
from dttui.spec.problems import PathKey
from dttui.variables import variables
from dttui.words import listed
from dttui.workdir.selection import UploadFile, check_script, survey

MAX_NAMES = 5
"""Files that a finding names; the others are counted."""


def make_local_plan(
    submission: Submission,
    facts: dict[str, HostFacts] | None = None,
    hardware: KnownHardware | None = None,
    costed: Costed | None = None,
    measured: Mapping[str, float] | None = None,
) -> Plan:
    """Plan the job and check what lies on this machine: the directory to send, the script in it, the secrets.

    Findings tell their place in the job's file where the submission comes with one.

    Args:
        submission: the job.
        facts: what the agents said of their hosts.
        hardware: what is known of GPUs and links; read now where it is not given.
        costed: what the job costs, where that has been read just now.
        measured: node → samples a second of a rank there, where an attempt has told.

    Raises:
        UsageError: what is known of GPUs and links cannot be read.
    """
    known = hardware or known_hardware(submission.inventory.environments, lenient=True)
    job = _with_sent_script(submission.job, submission.base)
    unread: list[Finding] = []
    try:
        job = with_config(job, submission.base)
    except UsageError as fault:
        unread.append(warning("model-config", "model.config", fault.message, fault.hint))
    plan = make_plan(
        job,
        submission.inventory,
        facts or {},
        links=known.links,
        gpus=known.gpus,
        now=time.time(),
        costed=costed,
        measured=measured,
        learned=known.learned,
    )
    found = [*plan.findings, *unread, *known.findings, *submission.notes]
    found += [] if submission.is_queued else check_unqueued(job)
    if plan.upload is not None:
        directory = Path(os.path.normpath(submission.base / plan.upload))
        found.extend(_check_upload(job.run, directory))
        if job.run is not None:
            found = _check_sent(found, job, job.run, plan, directory)
            plan = plan.model_copy(update={"imports": needed_modules(job.run, directory)})
    elif job.run is not None and job.run.workdir is None and job.run.command is not None:
        found.extend(_check_command_alone(job.run.command))
        found.extend(check_launchers(job.run, plan, None))
    found.extend(_check_secrets(plan.secrets, submission))
    found.extend(_check_program(submission))
    findings = errors_first(found)
    if submission.text is not None and submission.file is not None:
        findings = with_places(findings, submission.text, submission.file, submission.source)
    return plan.model_copy(update={"findings": findings})


def _check_sent(found: Iterable[Finding], job: Job, run: Run, plan: Plan, directory: Path) -> list[Finding]:
    """Return findings, with those of what is sent, and without those that the script which is sent shows to be void."""
    kept = [*found, *check_resuming(plan, run, directory), *check_sharing(job, run, directory)]
    kept.extend(check_launchers(run, plan, directory))
    if not plan.framework:
        return kept
    kept.extend(check_imports(plan.framework, run, directory))
    modules = traits_of(plan.framework).findings_of_imports
    return [item for item in kept if not _is_of_another_script(item, modules, run, directory)]


def _check_secrets(names: Sequence[str], submission: Submission) -> Iterator[Finding]:
    """Yield which secrets have no value here, and which are not kept to themselves."""
    if not names:
        return
    kept = read_secrets(submission.base)
    known_variables = {**kept.values, **variables()}
    text = submission.text or dump_job(submission.job)
    for index, name in enumerate(names):
        path: PathKey = ("run", "secrets", index)
        if name not in known_variables:
            yield _secret_missing(path, name, kept)
        elif not is_known(known_variables[name]):
            yield warning(
                "secret-short",
                "run.secrets",
                _("the value of {name} is too short to be left out of logs and events").format(name=name),
                _("It takes at least {count} characters that are not blank.").format(count=MIN_LENGTH),
                path=path,
            )
        elif known_variables[name] in text:
            yield warning(
                "secret-written",
                "run.secrets",
                _("the value of {name} is also written in the job's file").format(name=name),
                _("Take it out there: what the file holds is kept, sent and shown as it is."),
                path=path,
            )


def _secret_missing(path: PathKey, name: str, kept: SecretsFile) -> Finding:
    message = _("the environment variable {name} is not set").format(name=name)
    hint = _("Export it before starting dttui, or write it to {file} beside the job file, mode 0600.")
    hint = hint.format(file=FILE_NAME)
    if kept.problem:
        message, hint = f"{message}; {kept.problem}", kept.hint or hint
    return error("secret-missing", "run.secrets", message, hint, path=path)


def _is_of_another_script(finding: Finding, modules: Mapping[str, str], run: Run, directory: Path) -> bool:
    """Whether a finding is about a module of the framework that the script which is sent does without."""
    return finding.code in modules and is_without(modules[finding.code], run, directory)


def _check_program(submission: Submission) -> list[Finding]:
    """Return whether there is the program that events are told to; it runs here, and not on the hosts."""
    monitoring = submission.job.monitoring
    if monitoring.on_event is None:
        return []
    subject, name = "monitoring.on_event", monitoring.on_event[0]
    found = find_program(name, submission.base)
    if found is None:
        message = _("there is no program {name} here that could be run").format(name=name)
        return [
            error("on-event-missing", subject, message, _("Give its path, relative to the job file, or chmod +x it."))
        ]
    message = _("events start {program} on this machine: {kinds}")
    return [info("on-event", subject, message.format(program=found, kinds=", ".join(monitoring.on_event_kinds)))]


def _with_sent_script(job: Job, base: Path) -> Job:
    """Write an absolute script that lies in the directory to be sent relative to that: the hosts have it elsewhere."""
    run = job.run
    if run is None or run.script is None or run.workdir is None:
        return job
    if not posixpath.isabs(run.script) or posixpath.isabs(run.workdir):
        return job
    folder, name = os.path.split(os.path.normpath(run.script))
    relative = os.path.relpath(f"{os.path.realpath(folder)}/{name}", os.path.realpath(base / run.workdir))
    if relative.split("/")[0] == "..":
        return job
    return job.model_copy(update={"run": run.model_copy(update={"script": relative})})


def _check_command_alone(command: Sequence[str]) -> list[Finding]:
    """Return the files of a command that starts in an empty directory, since the job has no `workdir`."""
    return [
        warning(
            "command-missing",
            "run.command",
            _("run.command needs {file}, and nothing is sent without run.workdir").format(file=file),
            _("Add `workdir: .` below run, which sends the directory of the job file."),
        )
        for file in files_of(command)
        if not posixpath.isabs(file)
    ]


def _check_command(command: Sequence[str], directory: Path, sent: Mapping[str, UploadFile]) -> list[Finding]:
    """Return which files of a command are not among what is sent, or cannot be executed."""
    findings = []
    for file in (path for path in files_of(command) if not posixpath.isabs(path)):
        found = sent.get(os.path.normpath(file))
        if found is None and (directory / file).is_file():
            message = _("{file} of run.command is among what is not sent").format(file=file)
            hint = _("Give it another name or place.")
        elif found is None:
            message = _("run.command needs {file}, which is not in {path}").format(file=file, path=directory)
            hint = _("Write its path relative to workdir; where the job makes it first, ignore command-missing.")
        elif file == command[0] and not found.executable:
            message = _("{file} of run.command is not executable").format(file=file)
            hint = _("Run `chmod +x {path}`, or write the interpreter before it.").format(path=directory / file)
        else:
            continue
        findings.append(warning("command-missing", "run.command", message, hint))
    return findings


def _check_upload(run: Run | None, directory: Path) -> list[Finding]:
    subject = "run.workdir"
    if not directory.is_dir():
        message = _("there is no directory {path} here").format(path=directory)
        return [error("workdir-missing", subject, message, _("Write the path relative to the job file."))]
    if Path("~").expanduser().resolve().is_relative_to(directory.resolve()):
        message = _("{path} would be sent to every host, your home directory included").format(path=directory)
        return [error("workdir-home", subject, message, _("Put the job and what it runs into a directory of its own."))]
    own_script = run.script if run is not None and not posixpath.isabs(run.script or "/") else None
    if own_script is not None and (missing := check_script(own_script, directory)):
        return missing
    try:
        upload = survey(directory)
    except UsageError as refusal:
        return [error("workdir-too-large", subject, refusal.message, refusal.hint)]
    findings = []
    if upload.misnamed:
        message = _("names of files must be UTF-8, and at most 255 bytes long: {names}").format(
            names=listed(upload.misnamed, MAX_NAMES)
        )
        findings.append(error("file-name", subject, message, _("Rename them, or keep them elsewhere.")))
    if upload.left_out:
        message = _("not sent to the hosts: {names}").format(names=listed(upload.left_out, MAX_NAMES))
        hint = _(
            "Hidden files, *.env, private keys, what .gitignore names and links that lead elsewhere stay here; "
            "secrets go in run.secrets."
        )
        findings.append(info("not-sent", subject, message, hint))
    sent = {file.relative: file for file in upload.files}
    if own_script is not None and os.path.normpath(own_script) not in sent:
        message = _("the script {script} is among what is not sent").format(script=own_script)
        findings.append(error("script-not-sent", "run.script", message, _("Give it another name or place.")))
    if run is not None and run.script is not None and own_script is None:
        message = _("the script {script} is not in {path}, which is sent: it must be at this path on every host")
        make = warning if os.path.isfile(run.script) else info  # Where it is here, it was likely to be sent.
        hint = _("To send it, put it there, or set run.workdir to a directory that holds it.")
        findings.append(make("script-on-hosts", "run.script", message.format(script=run.script, path=directory), hint))
    if run is not None and run.command is not None:
        findings.extend(_check_command(run.command, directory, sent))
    return findings


def find_program(name: str, directory: Path) -> str | None:
    """Return where a program is that `on_event` names; `None` where there is none that can be run."""
    wanted = str(directory / Path(name).expanduser()) if "/" in name else name
    return shutil.which(wanted, path=variables().get("PATH", os.defpath))
