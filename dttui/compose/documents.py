"""Files that a person opens and saves: job files, settings, hosts to import, the job and hosts of the demo."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from dttui import locations
from dttui.errors import UsageError
from dttui.files import write_atomic
from dttui.i18n import _
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Environment, Inventory
from dttui.inventory.reader import is_ssh_config, load_inventory
from dttui.inventory.ssh_hosts import import_ssh_config, is_forge
from dttui.inventory.writer import add_environments
from dttui.planning.compose_state import ComposeState
from dttui.planning.submission import Submission
from dttui.spec import DocumentError, Job, dump_job, load_document, load_job
from dttui.spec.edit import edited_in_place, with_keys
from dttui.spec.format import format_job
from dttui.spec.yaml_composer import INVENTORY
from dttui.spec.yaml_reader import decode, read_bytes

DEMO_JOB = Path("gpt", "job.yaml")
"""Relative to the examples."""
_STAND_IN_NAME = "unnamed"
"""Of a draft that has none yet."""
_DOCUMENTS = (".yaml", ".yml", ".json")
"""Ends of the names of job files."""
MOST_PLACES = 200
MOST_LOOKED_AT = 20_000
MOST_RECENT = 5
"""Of those that are kept, the shown ones."""
MOST_KEPT = 20


def load_demo() -> tuple[Inventory, Submission]:
    """Return the embedded cluster, and the job that is ready to launch on it."""
    examples = locations.shipped("examples")
    inventory = demo_inventory(locations.demo_root(), examples, sys.executable)
    path = examples / DEMO_JOB
    return inventory, Submission(load_job(path), inventory, path.parent)


def open_job(path: Path, inventory: Inventory) -> Submission:
    """Return the job of a file. Raises DocumentError with every problem and its place."""
    full = expanded(path)
    loaded = load_document(full)
    return Submission(loaded.job, inventory, full.resolve().parent, notes=loaded.notes)


def text_of_draft(state: ComposeState, opened: Path | None, edited: str | None) -> str:
    """Return the text of a draft's job file, with the comments and the form that it has so far.

    A draft without a name has an empty one, which is told to be wrong.

    Args:
        state: the draft.
        opened: the file that it was read from.
        edited: the text as it was edited last, if that is not in the file.

    Raises:
        UsageError: a field holds what no job can.
    """
    named = state if state.task_name.strip() else replace(state, task_name=_STAND_IN_NAME)
    job = named.to_job()
    text = edited_in_place(edited, job) if edited is not None else None
    if text is None and opened is not None:
        text = _edited(expanded(opened), job)
    if text is None:
        text = dump_job(job)
    return text if named is state else text.replace(f"name: {_STAND_IN_NAME}", 'name: ""', 1)


def save_job(
    path: Path, submission: Submission, *, opened: Path | None = None, edited: str | None = None
) -> Submission:
    """Write a job file that does from where it lies what the submission does, and return it as a submission.

    A directory that is sent with the job is named relative to the new file.

    Args:
        path: where to.
        submission: the job.
        opened: the file that it was read from. Saved there again, only what changed in the job changes in the file.
        edited: the text as it was edited last, if that is not in the file; its comments are saved.

    Raises:
        UsageError: the file cannot be written.
    """
    target = Path(os.path.realpath(expanded(path)))
    job = _moved(submission.job, submission.base, target.parent)
    text = _text(path, target, job, opened, edited)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, dump_job(job) if text is None else text)
    except OSError as error:
        raise UsageError(_("cannot write {file}: {reason}").format(file=path, reason=error.strerror)) from error
    return Submission(job, submission.inventory, target.parent)


def keeps_comments(
    path: Path, submission: Submission, *, opened: Path | None = None, edited: str | None = None
) -> bool:
    """Whether saving a job as `save_job` would leaves the comments that are in the file, or in the edited text."""
    target = Path(os.path.realpath(expanded(path)))
    if not has_comments(target):
        return True
    job = _moved(submission.job, submission.base, target.parent)
    return _is_same_file(path, opened) and _text(path, target, job, opened, edited) is not None


def format_file(path: Path, *, write: bool) -> bool:
    """Bring a job file into its canonical form; return whether it is in another one, or was.

    Raises:
        DocumentError: it is no valid job; with every problem found.
        UsageError: it cannot be formatted, or not be written.
    """
    content = read_bytes(path, str(path))
    formatted = format_job(content, str(path))
    changes = formatted.encode("utf-8") != content
    if changes and write:
        try:
            write_atomic(Path(os.path.realpath(path)), formatted)
        except OSError as error:
            raise UsageError(_("cannot write {file}: {reason}").format(file=path, reason=error.strerror)) from error
    return changes


def set_keys(path: Path, changes: Mapping[tuple[str | int, ...], Any]) -> None:
    """Change keys of a YAML file, made where there is none; comments in it stay. `None` takes a key away.

    Raises:
        DocumentError: it is no mapping.
        UsageError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    text = decode(read_bytes(target, str(path)), str(path)) if target.exists() else ""
    try:
        write_atomic(target, with_keys(text, str(path), changes))
    except OSError as error:
        raise UsageError(_("cannot write {file}: {reason}").format(file=path, reason=error.strerror)) from error


def is_there(path: Path) -> bool:
    """Whether a file of that name exists."""
    return os.path.lexists(expanded(path))


def fingerprint(path: Path) -> str | None:
    """Return what tells one content of a file from another; `None` where it cannot be read."""
    try:
        return hashlib.sha256(expanded(path).read_bytes()).hexdigest()
    except OSError:
        return None


def is_unchanged(path: Path, opened: Path | None, known: str | None) -> bool:
    """Whether a path is that of the opened file, and its content the one whose fingerprint was taken then."""
    return _is_same_file(path, opened) and known is not None and fingerprint(path) == known


def has_comments(path: Path) -> bool:
    """Whether a file seems to have comments in it; `False` where it cannot be read."""
    try:
        text = expanded(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return re.search(r"(^|\s)#", text, re.MULTILINE) is not None


@dataclass(frozen=True)
class JobPlaces:
    """What a person may mean who has typed a part of a path."""

    recent: tuple[Path, ...]
    """Job files that were opened or saved lately, the last one first."""
    files: tuple[Path, ...]
    directories: tuple[Path, ...]


def places_for(typed: str) -> JobPlaces:
    """Return the files and directories that go on as a path is typed, and of the recent files those with its end.

    Of a directory so many entries are looked at that it takes no time.
    """
    directory, slash, part = typed.rpartition("/")
    wanted = part.casefold()
    files: list[Path] = []
    directories: list[Path] = []
    # Half of a path is no directory as yet.
    with contextlib.suppress(OSError, ValueError), os.scandir(expanded(directory + slash)) as entries:
        for entry in islice(entries, MOST_LOOKED_AT):
            if wanted not in entry.name.casefold() or (entry.name[0] == "." and not part.startswith(".")):
                continue
            if _is_directory(entry):
                directories.append(Path(entry.path))
            elif os.path.splitext(entry.name)[1].lower() in _DOCUMENTS:
                files.append(Path(entry.path))
    recent = tuple(path for path in recent_files() if wanted in path.name.casefold())
    found = tuple(sorted(files)[:MOST_PLACES]), tuple(sorted(directories)[:MOST_PLACES])
    return JobPlaces(recent[:MOST_RECENT], *found)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return entry.is_dir()
    return False


def is_directory(path: Path) -> bool:
    """Whether that is a directory which can be looked into."""
    return os.path.isdir(expanded(path))


def recent_files() -> list[Path]:
    """Return the job files that were opened or saved last and are there, the last one first."""
    try:
        known = json.loads(locations.recent_files().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    paths = [Path(item) for item in known if isinstance(item, str)] if isinstance(known, list) else []
    return [path for path in paths if os.path.isfile(path)]


def expanded(path: Path | str) -> Path:
    """Return a path with the home that it begins with; as it is, where there is no such user."""
    return Path(os.path.expanduser(path))


def full_path(path: Path | str) -> Path:
    """Return a path as a person writes it, from the root."""
    return Path(os.path.abspath(expanded(path)))


def remember(path: Path) -> None:
    """Keep in mind that a job file was opened or saved; on a disk that takes nothing it is not."""
    full = full_path(path)
    others = [item for item in recent_files() if item != full]
    with contextlib.suppress(OSError):
        write_atomic(locations.recent_files(), json.dumps([str(item) for item in [full, *others][:MOST_KEPT]]))


@dataclass(frozen=True)
class ImportableHosts:
    """What an inventory can be given from another file."""

    new: list[Environment]
    """Those that it lacks."""
    left_out: list[str]
    """Names of services for source code, on which nobody trains."""
    known: list[str]
    """Names of those that it has."""


def importable_hosts(inventory: Inventory, names: Sequence[str] = ()) -> ImportableHosts:
    """Return the hosts of ~/.ssh/config that the inventory lacks: those of some names, or all that may train.

    Raises:
        DocumentError: it cannot be read.
        UsageError: it has no host of a name.
    """
    config = locations.ssh_config_file()
    found = import_ssh_config(config)
    if missing := set(names) - {item.name for item in found}:
        raise UsageError(
            _("{file} has no host {name}").format(file=config, name=", ".join(sorted(missing))),
            _("It has: {names}").format(names=", ".join(item.name for item in found) or "–"),
        )
    if not names:
        return _importable(found, inventory)
    return _importable([item for item in found if item.name in names], inventory, takes_forges=True)


def hosts_of(source: str, inventory: Inventory) -> ImportableHosts:
    """Return the hosts that the inventory lacks, of an ssh configuration or of whatever is read as an inventory.

    Args:
        source: path of the file; or `slurm:` for the allocation of Slurm that dttui runs in.
        inventory: what is there already.

    Raises:
        DocumentError: it cannot be read, or is nothing of these; with every problem and its place.
        UsageError: there is no allocation.
    """
    if source == locations.SLURM:
        return _importable(load_inventory(source).environments, inventory)
    path = expanded(source)
    is_own = os.path.realpath(path) == os.path.realpath(locations.ssh_config_file())
    if is_own or is_ssh_config(decode(read_bytes(path, str(path), INVENTORY), str(path), INVENTORY)):
        return _importable(import_ssh_config(path), inventory)
    return _importable(load_inventory(path).environments, inventory)


def _importable(found: Sequence[Environment], inventory: Inventory, *, takes_forges: bool = False) -> ImportableHosts:
    left_out = [] if takes_forges else [item.name for item in found if is_forge(item)]
    known = [item.name for item in found if any(inventory.find(key) for key in (item.name, item.id) if key is not None)]
    new = [item for item in found if item.name not in left_out and item.name not in known]
    return ImportableHosts(new, left_out, known)


def import_hosts(path: Path, hosts: Sequence[Environment]) -> Inventory:
    """Add hosts to an inventory file. Raises UsageError where it cannot be written."""
    return add_environments(path, hosts)


def _moved(job: Job, base: Path, directory: Path) -> Job:
    run = job.run
    if run is None or directory == base.resolve():
        return job
    sent = run.workdir
    if sent is None and run.script is not None and not posixpath.isabs(run.script):
        sent = "."
    if sent is None or posixpath.isabs(sent):
        return job
    workdir = os.path.relpath(base.resolve() / sent, directory)
    return job.model_copy(update={"run": run.model_copy(update={"workdir": workdir})})


def _is_same_file(path: Path, opened: Path | None) -> bool:
    return opened is not None and os.path.realpath(expanded(path)) == os.path.realpath(expanded(opened))


def _text(path: Path, target: Path, job: Job, opened: Path | None, edited: str | None) -> str | None:
    """Return what to write, with comments; `None` where there is nothing that has any, or nothing can keep them."""
    if edited is not None:
        return edited_in_place(edited, job)
    return _edited(target, job) if _is_same_file(path, opened) else None


def _edited(path: Path, job: Job) -> str | None:
    """Return a file's text with the job in it; `None` where it is no job file that can be edited in place."""
    try:
        return edited_in_place(decode(read_bytes(path, str(path)), str(path)), job)
    except DocumentError:
        return None
