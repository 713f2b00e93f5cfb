"""What an attempt has written on this host since its start: where to look for that, and what is there, by place."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dtagent.attempts import retention
from dtagent.attempts.saved_walk import Walk, WalkedFile, as_text
from dtagent.checkpoints.entries import is_of_others
from dtagent.locations import AttemptFiles
from dtagent.protocol.saved import MAX_LOOK_S, MAX_PLACES, PlaceKind, SavedPlace, SavedReply, SavedRequest
from dtagent.system import untrusted_files

MOST_OUTPUTS = 16
"""Directories that arguments name."""
MOST_SHELL_BYTES = 64 * 1024
OUTPUT_NAMES = frozenset(
    {
        "output",
        "output_dir",
        "output_directory",
        "output_folder",
        "output_path",
        "outputs",
        "outdir",
        "out_dir",
        "out_folder",
        "out",
        "save",
        "save_dir",
        "save_directory",
        "save_folder",
        "save_path",
        "save_to",
        "savedir",
        "model_save_dir",
        "log_dir",
        "logdir",
        "log_path",
        "logging_dir",
        "explicit_log_dir",
        "tensorboard_dir",
        "tensorboard_log_dir",
        "exp_dir",
        "experiment_dir",
        "work_dir",
        "workdir",
        "run_dir",
        "run_path",
        "result_dir",
        "results_dir",
        "results_path",
        "results",
        "checkpoint_dir",
        "checkpoint_path",
        "checkpoints_dir",
        "checkpoint_folder",
        "ckpt",
        "ckpt_dir",
        "ckpt_path",
        "dirpath",
        "default_root_dir",
        "default_local_dir",
        "serialization_dir",
        "dump_dir",
        "dump_folder",
        "model_dir",
        "artifact_dir",
        "project",
    }
)
"""What trainers call the option or key that says where they write, with `_` for `-`."""
_OPTION = re.compile(r"--?([A-Za-z][\w.-]{0,100})(?:=(.*))?", re.DOTALL)
_SETTING = re.compile(r"\+{0,2}([A-Za-z][\w.]{0,100})=(.*)", re.DOTALL)


@dataclass(frozen=True)
class WrittenPlace:
    """Where an attempt may have written."""

    path: str
    """Absolute, without links."""
    kind: PlaceKind


def places_of(files: AttemptFiles) -> list[WrittenPlace]:
    """Return where the processes of an attempt were told to write, each place once; nothing where that is unknown."""
    found: dict[str, WrittenPlace] = {}

    def add(path: str, kind: PlaceKind) -> None:
        real = os.path.realpath(path)
        if os.path.exists(real) and real not in _NOBODYS:
            found.setdefault(real, WrittenPlace(real, kind))

    processes = [process for process in _processes(files) if not process.get("is_service")]
    for process in processes:
        told = process["env"].get("DTTUI_CHECKPOINT_DIR")
        if isinstance(told, str) and told:
            add(os.path.join(process["cwd"], told), PlaceKind.CHECKPOINTS)
    add(str(files.checkpoints), PlaceKind.CHECKPOINTS)
    for process in processes:
        for value in list(named_outputs(process["argv"]))[:MOST_OUTPUTS]:
            add(os.path.join(process["cwd"], value), PlaceKind.OUTPUT)
    for process in processes:
        add(process["cwd"], PlaceKind.WORK)
    return list(found.values())[: 2 * MAX_PLACES]


_NOBODYS = frozenset(os.path.realpath(path) for path in ("/", "/tmp", "/var/tmp", os.path.expanduser("~")))  # noqa: S108 - these are looked for, not written to
"""Directories that hold what many others write."""


def working_directory(files: AttemptFiles) -> str:
    """Return where relative paths of a person begin: the working directory of the attempt's first process."""
    return next((os.path.realpath(process["cwd"]) for process in _processes(files)), str(files.work))


def named_outputs(argv: Sequence[str], *, is_inner: bool = False) -> Iterator[str]:
    """Yield what arguments say of where to write: `--output_dir X`, `--save=X`, `trainer.default_local_dir=X`.

    Also those of a command that is one argument, as a shell takes it.
    """
    for index, word in enumerate(argv):
        value: str | None = None
        if option := _OPTION.fullmatch(word):
            value = option[2]
            if value is None and _is_output(option[1]) and index + 1 < len(argv):
                following = argv[index + 1]
                value = following if not following.startswith("-") else None
            name = option[1]
        elif setting := _SETTING.fullmatch(word):
            name, value = setting[1], setting[2]
        else:
            if not is_inner and " " in word and len(word) < MOST_SHELL_BYTES:
                yield from named_outputs(_shell_words(word), is_inner=True)
            continue
        if value and _is_output(name) and "\0" not in value:
            yield value


def look(files: AttemptFiles, request: SavedRequest) -> SavedReply:
    """Return what an attempt has written since its start. Blocks for as long as the file systems do."""
    since = started_at(files)
    is_kept = files.keep.exists()
    if since is None:
        return SavedReply(is_kept=is_kept)
    walk = Walk(min(max(request.seconds, 0.1), MAX_LOOK_S))
    places = places_of(files)
    tallies = [tally for place in places for tally in _tallies(walk, files, place, places, since)]
    order = list(PlaceKind)
    tallies.sort(key=lambda tally: (order.index(tally.kind), -tally.size_bytes, tally.path))
    told = [tally.told(files, is_whole=walk.is_whole) for tally in tallies[:MAX_PLACES]]
    return SavedReply(told, walk.is_whole and len(tallies) <= MAX_PLACES, is_kept)


def started_at(files: AttemptFiles) -> float | None:
    """Return when an attempt was started, by this host's clock; `None` where it was not.

    Of one of which only checkpoints are left, that is at the beginning of time.
    """
    try:
        return files.start.lstat().st_mtime
    except OSError:
        return None if files.prepared.exists() or files.discarded.exists() else 0.0


def written(
    walk: Walk, files: AttemptFiles, place: WrittenPlace, places: Sequence[WrittenPlace], since: float
) -> Iterator[WalkedFile]:
    """Yield the files of a place that are newer than a time; what is another place's is that one's."""
    others = {other.path for other in places if other.path != place.path}
    excluded = {*others, os.path.realpath(files.directory.parents[2])}
    for found in walk.files(place.path, excluded, _skips(files, place)):
        if found.changed_at > since and os.path.join(place.path, found.path) not in others:
            yield found


def _is_hidden(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(".") or name == "__pycache__"


def _skips(files: AttemptFiles, place: WrittenPlace) -> Callable[[str], bool] | None:
    """Return what tells of a path in a place that the script did not write it.

    Those are caches, copies that are kept for other nodes, and what the agent has where an attempt runs in its own
    directory, as a command does that needs no files.
    """
    if place.kind is PlaceKind.CHECKPOINTS:
        return lambda path: "/" not in path and is_of_others(path)
    if place.kind is not PlaceKind.WORK:
        return None
    if place.path != os.path.realpath(files.directory):
        return _is_hidden
    own = files.own_names | _sent_names(files)
    return lambda path: _is_hidden(path) or path.partition("/")[0] in own


def _sent_names(files: AttemptFiles) -> frozenset[str]:
    """Return what was written to an attempt's directory when it was started."""
    sent = _start_of(files).get("files")
    paths = [item.get("path") for item in (sent if isinstance(sent, list) else []) if isinstance(item, dict)]
    return frozenset(path.partition("/")[0] for path in paths if isinstance(path, str))


@dataclass
class _Tally:
    path: str
    kind: PlaceKind
    count: int = 0
    size_bytes: int = 0
    newest: float = 0.0

    def add(self, found: WalkedFile) -> None:
        self.count += 1
        self.size_bytes += found.seen.st_size
        self.newest = max(self.newest, found.seen.st_mtime)

    def told(self, files: AttemptFiles, *, is_whole: bool) -> SavedPlace:
        goes_at = None if self.kind is PlaceKind.CHECKPOINTS else retention.goes_at(files, self.path)
        return SavedPlace(
            as_text(self.path), self.kind, self.count, self.size_bytes, self.newest, is_whole=is_whole, goes_at=goes_at
        )


def _tallies(
    walk: Walk, files: AttemptFiles, place: WrittenPlace, places: Sequence[WrittenPlace], since: float
) -> list[_Tally]:
    """Return what is new in a place: of a working directory by what lies directly in it, else all of it as one."""
    found: dict[str, _Tally] = {}
    for item in written(walk, files, place, places, since):
        top, _slash, below = item.path.partition("/")
        path = place.path if place.kind is not PlaceKind.WORK or not below else os.path.join(place.path, top)
        found.setdefault(path, _Tally(path, place.kind)).add(item)
    return list(found.values())


def _start_of(files: AttemptFiles) -> dict[str, Any]:
    """Return what an attempt was started with; nothing where that is not there, or damaged."""
    try:
        return untrusted_files.read_object(files.start, untrusted_files.RECORD_BYTES)
    except (OSError, ValueError):
        return {}


def _processes(files: AttemptFiles) -> list[dict[str, Any]]:
    """Return the processes of an attempt as it was started, those that are whole."""
    told = _start_of(files).get("processes")
    return [
        {**process, "env": env if isinstance(env := process.get("env"), dict) else {}}
        for process in (told if isinstance(told, list) else [])
        if isinstance(process, dict)
        and isinstance(process.get("cwd"), str)
        and isinstance(process.get("argv"), list)
        and all(isinstance(word, str) for word in process["argv"])
    ]


def _is_output(name: str) -> bool:
    before, _dot, last = name.replace("-", "_").lower().rpartition(".")
    if last in ("dir", "directory", "folder", "path"):  # As Hydra has it, `hydra.run.dir`.
        last = f"{before.rpartition('.')[2]}_{last}"
    return last in OUTPUT_NAMES


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return []
