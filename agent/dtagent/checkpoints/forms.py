"""The forms that checkpoints have in a directory: which entries are candidates, and when one is complete.

A framework marks the end of a checkpoint in one of two ways: by a file inside it that is written last (`COMPLETE`, the
`.metadata` of torch.distributed.checkpoint, `trainer_state.json`, Lightning's `meta.pt`), or by one beside all of them
that names the last one (DeepSpeed's `latest`, Megatron's `latest_checkpointed_iteration.txt`). One beside them is
written in place, so it may be torn itself: then it was begun after what it was to name had been complete.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dtagent.checkpoints.entries import Entry, entries_of, files_of
from dtagent.checkpoints.shards import SHARD, check_shards, metadata_files, number_in
from dtagent.checkpoints.wholeness import TornError, check_contents, check_file
from dtagent.protocol import sentences
from dtagent.protocol.checkpoints import PART
from dtagent.protocol.said import Said
from dtagent.system.untrusted_files import UnusableFileError, read, read_object

COMPLETE = "COMPLETE"
"""The file whose presence says that the checkpoint of its directory was written to its end."""
DEEPSPEED_LATEST = "latest"
MEGATRON_LATEST = "latest_checkpointed_iteration.txt"
TRAINER_STATE = "trainer_state.json"
LIGHTNING_META = "meta.pt"
_NAMES_IT = {"megatron": MEGATRON_LATEST, "deepspeed": DEEPSPEED_LATEST}
_ITERATION = r"iter_\d{7,}"
"""Megatron-LM's name for the checkpoint of an iteration."""

STATE_BYTES = 64 * 1024 * 1024
"""Longest `trainer_state.json` that is read."""
_MOST_FILES = 200_000
_OF_ONE_FILE = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".keras")
_OF_ANOTHER_RANK = re.compile(r".*zero_pp_rank_[1-9]")
_LATE_NS = 60 * 10**9
"""How long after DeepSpeed's rank 0 has named a checkpoint others may still write their shares of it."""
_NAMES_OF_ALL = re.compile(r"(?:.*[-_.])?(?:best|last|latest|final|newest|ckpt|checkpoint|snapshot)(?:[-_.].*)?")
"""Files without a number that hold all there is of a checkpoint, however many of them there are."""


@dataclass(frozen=True)
class Candidate:
    """Something that may be a checkpoint."""

    form: str
    """Whose form it has: `complete-file`, `hugging-face`, `deepspeed`, `megatron`, `torch-dcp`, `lightning`, `file`."""
    path: Path
    time_ns: int
    """When it was changed last."""
    number: int | None = None
    """What the newest one has most of."""
    step: int | None = None
    """Step or iteration that its name tells."""
    refusal: Said | None = None
    """Why it cannot be complete, where that was seen without a look inside."""
    not_after_ns: int | None = None
    """When the file beside it was written that speaks of it: what is newer was begun since."""


def candidates(directory: Path) -> list[Candidate]:
    """Return what a directory has of checkpoints, complete or not; the newest one first.

    Raises:
        OSError: the directory cannot be read.
    """
    entries = entries_of(directory)
    folders = [entry for entry in entries if entry.is_directory]
    files = {entry.name: entry for entry in entries if not entry.is_directory}
    itself = Candidate("", directory, directory.stat().st_mtime_ns)
    if COMPLETE in files:
        found = [replace(itself, form="complete-file")]
    elif shapes := {folder.shape for folder in folders if (folder.path / COMPLETE).is_file()}:
        found = [_found("complete-file", folder) for folder in folders if folder.shape in shapes]
    elif any(name.endswith(SHARD) for name in files) or metadata_files(directory):
        found = [replace(itself, form="torch-dcp")]
    elif MEGATRON_LATEST in files:
        found = _of_megatron(folders, files[MEGATRON_LATEST])
    elif DEEPSPEED_LATEST in files and (found := _of_deepspeed(folders, files[DEEPSPEED_LATEST])):
        pass
    else:
        found = _by_their_looks(folders, list(files.values()))
    return _newest_first(found)


def check(candidate: Candidate) -> None:
    """Look whether a candidate is a complete checkpoint.

    Raises:
        TornError: it is not.
        OSError: it cannot be read.
    """
    path = candidate.path
    if candidate.refusal is not None:
        raise TornError(candidate.refusal)
    if candidate.form == "complete-file":
        if not (path / COMPLETE).is_file():
            raise TornError(sentences.MARK_IS_MISSING(file=COMPLETE))
    elif candidate.form == "hugging-face":
        _check_trainer_state(path, candidate.step)
    elif candidate.form == "deepspeed":
        _check_deepspeed(path)
    elif candidate.form == "lightning" and path.is_dir():
        _check_lightning(path)
    elif candidate.form == "torch-dcp":
        check_shards(path, may_be_overwritten=candidate.step is None)
    _check_files(candidate)


def form_of_part(candidate: Candidate) -> str | None:
    """Return the form of one that is not complete where other hosts may have the rest of it; `None` where not.

    What nothing here names is a `part`.

    Raises:
        OSError: it cannot be read.
    """
    path = candidate.path
    if candidate.step is None or not path.is_dir():
        return None
    if candidate.form == "torch-dcp":
        is_named = bool(metadata_files(path))
    elif candidate.form == "hugging-face" and any(_has_shares(folder) for folder in _folders_in(path)):
        is_named = (path / TRAINER_STATE).is_file()
    elif candidate.form in _NAMES_IT and _has_shares(path):
        is_named = candidate.refusal is None
    else:
        return None
    return candidate.form if is_named else PART


def named_beside(form: str, name: str) -> tuple[str, str] | None:
    """Return name and content of the file beside a checkpoint that names it, where its form has one."""
    if form == "megatron" and re.fullmatch(r"iter_\d{1,18}", name):
        return MEGATRON_LATEST, str(int(name.removeprefix("iter_")))
    return (_NAMES_IT[form], name) if form in _NAMES_IT else None


def form_of_tracked(checkpoint: Path) -> str:
    """Return whose form a checkpoint has of which a file beside it may tell; empty for any other.

    Raises:
        OSError: it cannot be read.
    """
    return "megatron" if re.fullmatch(_ITERATION, checkpoint.name) else "deepspeed" if _has_states(checkpoint) else ""


def verify(candidate: Candidate, deadline: float) -> None:
    """Look whether the files of a complete one still hold what was written to them, as far as they have checksums.

    Args:
        candidate: what has passed `check`.
        deadline: by the monotonic clock; what could not be read by then passes.

    Raises:
        TornError: one does not.
        OSError: one cannot be read.
    """
    for file, _seen in files_of(candidate.path, _MOST_FILES):
        name = file.name if file == candidate.path else os.path.relpath(file, candidate.path)
        check_contents(file.resolve() if file.is_symlink() else file, name, deadline)
        if time.monotonic() > deadline:
            return


def _found(form: str, entry: Entry) -> Candidate:
    return Candidate(form, entry.path, entry.time_ns, entry.number, entry.step)


def _of_megatron(folders: Sequence[Entry], tracker: Entry) -> list[Candidate]:
    told = _line(tracker.path)
    name = f"iter_{int(told):07d}" if re.fullmatch(r"\d{1,18}", told) else told
    ours = [folder for folder in folders if folder.name == name or re.fullmatch(_ITERATION, folder.name)]
    newest = max((folder.number or 0 for folder in ours), default=0)
    # Half a number is a number, too.
    is_half = told != str(newest) and str(newest).startswith(told)
    return _tracked("megatron", ours, "" if is_half else name, tracker)


def _of_deepspeed(folders: Sequence[Entry], tracker: Entry) -> list[Candidate]:
    told = _line(tracker.path)
    ours = [folder for folder in folders if folder.name == told or _has_states(folder.path)]
    return _tracked("deepspeed", ours, told, tracker)


def _tracked(form: str, folders: Sequence[Entry], named: str, tracker: Entry) -> list[Candidate]:
    """Return what the file beside them speaks of: what it names and those before, or all before it where it is torn."""
    found = {folder.name: _found(form, folder) for folder in folders}
    limit = found.get(named)
    if limit is None:
        return [replace(item, not_after_ns=tracker.time_ns) for item in found.values()]
    refusal = sentences.NOT_YET_NAMED(file=tracker.name)
    told = {
        name: item if item is limit or _age(item) < _age(limit) else replace(item, refusal=refusal)
        for name, item in found.items()
    }
    if limit.step is None:  # Without a number, one may be written over the other.
        told[named] = replace(limit, not_after_ns=tracker.time_ns)
    return list(told.values())


def _by_their_looks(folders: Sequence[Entry], files: Sequence[Entry]) -> list[Candidate]:
    """Return what has a framework's form, where nothing beside it tells whose it is; of several forms, the first."""
    trainer = _named(folders, r"checkpoint-\d{1,18}")
    if trainer:
        return [_found("hugging-face", folder) for folder in trainer]
    lightning = [entry for entry in (*folders, *files) if entry.path.suffix == ".ckpt"]
    if lightning:
        return [_found("lightning", entry) for entry in lightning]
    sharded = [folder for folder in folders if _has_shards(folder.path)]
    if sharded and not _named(sharded, _ITERATION):
        return [_found("torch-dcp", folder) for folder in sharded]
    # The file beside them is written last: without one there has been no complete one.
    begun = [_found("megatron", folder) for folder in _named(folders, _ITERATION)]
    begun += [_found("deepspeed", folder) for folder in folders if _has_states(folder.path)]
    if begun:
        return [replace(item, refusal=sentences.MARK_IS_MISSING(file=_NAMES_IT[item.form])) for item in begun]
    return _of_one_file([file for file in files if file.name.endswith(_OF_ONE_FILE)])


def _named(entries: Sequence[Entry], pattern: str) -> list[Entry]:
    """Return those whose whole name is like that."""
    return [entry for entry in entries if re.fullmatch(pattern, entry.name)]


def _of_one_file(files: Sequence[Entry]) -> list[Candidate]:
    """Return files that are a checkpoint each: where each of several names is a part of one, nothing tells its end."""
    numbered = [file for file in files if file.number is not None]
    plain = [file for file in files if file.number is None]
    found = [file for file in plain if len(plain) == 1 or _NAMES_OF_ALL.fullmatch(file.stem.lower())]
    parts = {file.shape for file in numbered}
    if len(parts) > 1 or len(found) < len(plain):
        return [replace(_found("file", file), refusal=sentences.PARTS_OF_ONE()) for file in files]
    return [_found("file", file) for file in (*numbered, *found)]


def _newest_first(found: list[Candidate]) -> list[Candidate]:
    """By number where all have one: times are those of the last copy."""
    if all(item.number is not None for item in found):
        return sorted(found, key=_age, reverse=True)
    return sorted(found, key=lambda item: item.time_ns, reverse=True)


def _age(item: Candidate) -> tuple[int, int]:
    return (-1 if item.number is None else item.number, item.time_ns)


def _has_shards(folder: Path) -> bool:
    return bool(metadata_files(folder)) or any(folder.glob(f"*{SHARD}"))


def _has_states(folder: Path) -> bool:
    """Whether it has what DeepSpeed saves of a model, or of the optimizer: of that each rank writes its own share."""
    return any(folder.glob("*model_states.pt")) or any(folder.glob("*optim_states.pt"))


def _has_shares(folder: Path) -> bool:
    return _has_states(folder) or _has_shards(folder)


def _folders_in(path: Path) -> list[Path]:
    return [entry.path for entry in entries_of(path) if entry.is_directory]


def _check_trainer_state(path: Path, step: int | None) -> None:
    try:
        told = read_object(path / TRAINER_STATE, STATE_BYTES).get("global_step")
    except FileNotFoundError:
        raise TornError(sentences.MARK_IS_MISSING(file=TRAINER_STATE)) from None
    except ValueError as error:
        raise TornError(sentences.FILE_IS_NONE(file=TRAINER_STATE)) from error
    if told != step:
        raise TornError(sentences.OF_ANOTHER_STEP(file=TRAINER_STATE, step=str(told)[:20]))
    if (path / DEEPSPEED_LATEST).is_file():
        _check_named_within(path)


def _check_deepspeed(path: Path) -> None:
    """Look for the states of the model, and for the share of each rank where ranks have shares of the optimizer.

    `latest` is written by rank 0 once that is done itself, and others may still be writing.
    """
    models = sorted(path.glob("*model_states.pt"))
    if not models:
        raise TornError(sentences.FILE_IS_MISSING(file="*model_states.pt"))
    names = [re.fullmatch(r"(.*zero_pp_rank_)(\d{1,9})(_mp_rank_.*)", file.name) for file in path.glob("*_states.pt")]
    shares: dict[tuple[str, str], set[int]] = {}
    for match in names:
        if match is not None:
            shares.setdefault((match[1], match[3]), set()).add(int(match[2]))
    told = number_in(models[0], "dp_world_size") if shares else None
    for (before, after), known in sorted(shares.items()):
        count = max(told or 0, max(known) + 1)
        missing = next((rank for rank in range(count) if rank not in known), None)
        if missing is not None:
            raise TornError(sentences.FILE_IS_MISSING(file=f"{before}{missing}{after}"))


def _check_lightning(path: Path) -> None:
    if _has_shards(path):
        check_shards(path, may_be_overwritten=path.name.startswith("last"))
        if not (path / LIGHTNING_META).is_file():
            raise TornError(sentences.MARK_IS_MISSING(file=LIGHTNING_META))
    else:
        _check_named_within(path)


def _check_named_within(path: Path) -> None:
    """Look whether what DeepSpeed's `latest` names, inside a checkpoint, is there."""
    named = _line(path / DEEPSPEED_LATEST)
    if not named or "/" in named or not (path / named).is_dir():
        raise TornError(sentences.MARK_IS_MISSING(file=f"{named or DEEPSPEED_LATEST}"))
    _check_deepspeed(path / named)


def _check_files(candidate: Candidate) -> None:
    """Check every file of a checkpoint, and every `.metadata` among them."""
    path, count, sharded = candidate.path, 0, set()
    for file, seen in files_of(path, _MOST_FILES + 1):
        count += 1
        if count > _MOST_FILES:
            raise TornError(sentences.TOO_MANY_FILES(limit=_MOST_FILES))
        late_ns = _LATE_NS if candidate.form == "deepspeed" and _OF_ANOTHER_RANK.match(file.name) else 0
        if candidate.not_after_ns is not None and seen.st_mtime_ns > candidate.not_after_ns + late_ns:
            raise TornError(sentences.FILE_IS_NEWER(file=file.name, other=_NAMES_IT[candidate.form]))
        if file.suffix == SHARD and (file.parent != path or candidate.form not in ("torch-dcp", "lightning")):
            sharded.add(file.parent)
        if not stat.S_ISREG(seen.st_mode):
            raise TornError(sentences.FILE_IS_NONE(file=os.path.relpath(file, path)))
        _check_one(file, path)
    if not count:
        raise TornError(sentences.FILE_IS_EMPTY(file=path.name))
    for folder in sorted(sharded):
        name = "" if folder == path else f"{os.path.relpath(folder, path)}/"
        check_shards(folder, name, may_be_overwritten=False)


def _check_one(file: Path, path: Path) -> None:
    name = file.name if file == path else os.path.relpath(file, path)
    try:
        check_file(file.resolve() if file.is_symlink() else file, name)
    except OSError as error:
        raise TornError(sentences.FILE_NOT_READ(file=name, error=error.strerror or str(error))) from error
    except MemoryError as error:
        raise TornError(sentences.FILE_IS_HUGE(file=name)) from error


def _line(path: Path) -> str:
    try:
        return read(path).decode("utf-8", "replace").strip()
    except (UnusableFileError, FileNotFoundError):
        return ""
