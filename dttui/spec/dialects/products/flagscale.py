"""FlagScale experiments that train: Megatron-LM's arguments, of the file that `defaults` names, by torchrun."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.products.embedded import EmbeddedScript, ScriptContext, joined
from dttui.spec.dialects.products.job_variables import JobVariables
from dttui.spec.dialects.products.product_kind import Outside, ReadFile, at
from dttui.spec.dialects.products.remainders import note_rest, note_section
from dttui.spec.dialects.products.yaml_documents import read_documents
from dttui.spec.dialects.translation import Translated, Translation, in_order, make_note
from dttui.spec.problems import DocumentError, PathKey, shown
from dttui.spec.yaml_source import YamlSource

_EXPERIMENT: PathKey = ("experiment",)
_RUNNER: PathKey = ("experiment", "runner")
_TASK: PathKey = ("experiment", "task")
_ENTRYPOINT: PathKey = (*_TASK, "entrypoint")
_SECTIONS = ("system", "model", "data")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][\w.]{0,80})(?:\?\?|:[^{}]{0,80})?\}")
_RESOLVED = 4
"""References to references that are followed."""


def translate(source: YamlSource, outside: Outside) -> Translated:
    """Carry an experiment over. Raises DocumentError with every problem of it."""
    kind = source.value((*_TASK, "type"))
    if kind != "train":
        message = _("this is a FlagScale experiment of the type {type}, which trains nothing").format(type=shown(kind))
        raise DocumentError([source.problem((*_TASK, "type"), source.key_mark((*_TASK, "type")), message)])
    entrypoint = source.value(_ENTRYPOINT)
    if not isinstance(entrypoint, str) or not entrypoint:
        message = _("this FlagScale experiment names no entrypoint, the script that trains")
        raise DocumentError([source.problem(_TASK, source.key_mark(_TASK), message)])
    translation = Translation(source)
    arguments, missing = _arguments(source, outside.read)
    variables = JobVariables(translation, outside.variables)
    envs = source.value((*_EXPERIMENT, "envs"))
    for name, value in envs.items() if isinstance(envs, Mapping) else ():
        variables.give(name, _filled(source, value) if isinstance(value, str) else value, (*_EXPERIMENT, "envs", name))
    variables.finish()
    _carry_rest(translation)
    document = translation.finish(message=_("not carried over: FlagScale's own"))
    script = EmbeddedScript(source)
    script.add_words([*_launch(source), (entrypoint, _ENTRYPOINT), *arguments])
    part = ScriptContext("FlagScale", ("command",), {**variables.values, **outside.variables}, outside.read).follow(
        script, source
    )
    job = joined(document, part)
    notes = [make_note(job.source, origin, message, hint, is_warning=True) for origin, message, hint in missing]
    hostfile = _hostfile(source)
    beside = (*job.beside, (hostfile, (*_RUNNER, "hostfile"))) if hostfile is not None else job.beside
    return replace(job, notes=in_order((*job.notes, *notes)), beside=beside)


def _hostfile(source: YamlSource) -> str | None:
    """Return the path of the hostfile; `None` where that is still to be given."""
    said = source.value((*_RUNNER, "hostfile"))
    path = _filled(source, said) if isinstance(said, str) else "<"
    return path if path and "<" not in path else None


def _launch(source: YamlSource) -> list[tuple[str, PathKey]]:
    """Return torchrun with what the runner says of it, each word with its place."""
    words: list[tuple[str, PathKey]] = [("torchrun", _RUNNER)]
    for key in ("nnodes", "nproc_per_node", "master_addr"):
        said = source.value((*_RUNNER, key))
        text = _filled(source, str(said)) if isinstance(said, (str, int)) and not isinstance(said, bool) else ""
        if text and not text.startswith("<"):
            words.append((f"--{key}={text}", (*_RUNNER, key)))
    return words


def _carry_rest(translation: Translation) -> None:
    name = translation.said((*_EXPERIMENT, "exp_name"))
    if isinstance(name, str) and name.strip() and "$" not in name:
        translation.carry((*_EXPERIMENT, "exp_name"), ("name",), name[:120])
    hostfile = (*_RUNNER, "hostfile")
    said = translation.said(hostfile)
    if isinstance(said, str) and _hostfile(translation.source) is None:
        message = _("still to be given: {names}").format(names=_filled(translation.source, said))
        translation.note(
            hostfile, message, _("Import it together with this one: dttui import CONFIG HOSTFILE"), is_warning=True
        )
    for key in ("nnodes", "nproc_per_node", "master_addr", "backend", "node_rank", "hostfile"):
        translation.use((*_RUNNER, key))
    message = _("not carried over: dttui starts the ranks itself")
    note_section(translation, _RUNNER, message)
    message = _("not carried over: FlagScale runs these commands before")
    note_section(
        translation,
        (*_EXPERIMENT, "cmds"),
        message,
        _("Write run.python, the interpreter of that environment, or run.prefix."),
    )
    translation.use(_TASK, ("action",), ("hydra",), ("defaults",), *((key,) for key in (*_SECTIONS, "train")))
    message = _("not carried over: FlagScale's own")
    for key in translation.said(_EXPERIMENT) or ():
        note_section(translation, (*_EXPERIMENT, key), message)
    note_rest(translation, message)


def _arguments(source: YamlSource, read: ReadFile) -> tuple[list[tuple[str, PathKey]], list[tuple[PathKey, str, str]]]:
    """Return the script's arguments with the places that they come from, and what is missing."""
    words: list[tuple[str, PathKey]] = []
    missing: list[tuple[PathKey, str, str]] = []
    for key in (*_SECTIONS, "train"):
        if isinstance(source.value((key,)), Mapping):
            words += [(word, (key,)) for word in _flattened(source, source.value((key,)))]
    defaults = source.value(("defaults",))
    for index, item in enumerate(defaults if isinstance(defaults, tuple) else ()):
        if not isinstance(item, Mapping) or "train" not in item:
            continue
        origin: PathKey = ("defaults", index)
        path = _beside(source.name, item["train"])
        data = _read_section(read, path) if path else None
        if data is None:
            message = _("not carried over: what {file} says, which is not there").format(
                file=shown(path or item["train"])
            )
            missing.append((origin, message, _("Put it beside this one: it has the arguments of the script.")))
        else:
            words += [(word, origin) for key in _SECTIONS for word in _flattened(source, data.get(key))]
    return words, missing


def _beside(name: str, said: object) -> str:
    """Return the path of a file that `defaults` names, below the directory of this one; nothing where it is no name."""
    text = str(said) if isinstance(said, (str, int)) else ""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)*", text) or ".." in text.split("/"):
        return ""
    return posixpath.join(posixpath.dirname(name), "train", f"{text.removesuffix('.yaml')}.yaml")


def _read_section(read: ReadFile, path: str) -> Mapping[str, Any] | None:
    text = read(path)
    documents = read_documents(text, path) if text is not None else None
    if documents is None:
        return None
    if documents.error is not None:
        raise documents.error
    return next((source.data for source in documents.sources if isinstance(source.data, Mapping)), {})


def _flattened(source: YamlSource, data: object) -> Iterator[str]:
    """Yield arguments of what a section says, as FlagScale does: sections within it have no names there."""
    for key, value in data.items() if isinstance(data, Mapping) else ():
        option = "--" + str(key).replace("_", "-")
        if isinstance(value, Mapping):
            yield from _flattened(source, value)
        elif isinstance(value, bool):
            if value:
                yield option
        elif isinstance(value, tuple):
            yield option
            yield from (_filled(source, str(item)) for item in value if not isinstance(item, (Mapping, tuple)))
        elif value is not None:
            yield option
            yield _filled(source, str(value))


def _filled(source: YamlSource, text: str) -> str:
    """Return a text with its references followed; one that leads nowhere becomes a placeholder, `<data_path>`."""
    for _round in range(_RESOLVED):
        replaced = _REFERENCE.sub(lambda match: _referred(source, match), text)
        if replaced == text or len(replaced) > 10_000:
            break
        text = replaced
    return text


def _referred(source: YamlSource, match: re.Match[str]) -> str:
    found = at(source.data, *match[1].split("."))
    if isinstance(found, (str, int, float)) and not isinstance(found, bool) and match[0] not in str(found):
        return str(found)
    return f"<{match[1]}>"
