"""`.torchxconfig`, in which torchx finds what `torchx run` is not told: taken where it names a component of dist."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace
from functools import partial

from dttui.i18n import _
from dttui.spec.dialects.products.embedded import EmbeddedScript, ScriptContext
from dttui.spec.dialects.translation import Translated, in_order, make_note, table_source
from dttui.spec.problems import DocumentError, PathKey, Problem, printable, shown
from dttui.spec.yaml_source import Mark, Value, YamlSource

_SECTION = re.compile(r"^\[(cli:\w+|component:[\w./:-]+)\][ \t]*$", re.MULTILINE)
_HEAD = re.compile(r"\[([^\]]+)\]\s*")
_SETTING = re.compile(r"([A-Za-z_][\w.-]*)\s*[=:]\s*(.*?)\s*")
_TAKEN = ("dist.ddp", "dist.spmd")
_RUN = "cli:run"
_SHORT = {"j": "-j", "m": "-m"}


def is_torchx_config(text: str, name: str) -> bool:
    """Whether a file is a configuration of torchx."""
    return posixpath.basename(name).endswith(".torchxconfig") or _SECTION.search(text) is not None


def translate_torchx_config(text: str, name: str) -> Translated:
    """Carry a configuration over. Raises DocumentError with every problem of it."""
    source = _read(text, name)
    sections = {key: value for key, value in source.data.items() if isinstance(value, dict)}
    component, origin = _component(source, sections)
    section = f"component:{component}"
    options = sections.get(section, {})
    if not any(options.get(key) for key in ("script", "m")):
        message = _("the component {component} names no script here").format(component=component)
        raise DocumentError([source.problem(origin, source.key_mark(origin), message, _by_command())])
    words: list[tuple[str, PathKey]] = [("torchx", origin), ("run", origin), (component, origin)]
    for key, value in options.items():
        if value not in ("", "None"):
            place = (section, key)
            words += [(_SHORT.get(key, f"--{key}"), place), (str(value), place)]
    script = EmbeddedScript(source)
    script.add_words(words)
    part = ScriptContext("torchx", ("component",), {}, lambda _path: None).follow(script, source)
    return _with_notes(part, source, sections, section)


def _by_command() -> str:
    return _("Import the command: dttui import -- torchx run COMPONENT ….")


def _component(source: YamlSource, sections: dict[str, dict[str, str]]) -> tuple[str, PathKey]:
    """Return the component that `torchx run` starts, and where it is named."""
    said = sections.get(_RUN, {}).get("component")
    named = [name.partition(":")[2] for name in sections if name.startswith("component:")]
    if said is None and len(named) == 1:
        return _checked(source, named[0], (f"component:{named[0]}",))
    if said is None and named:
        message = _("this describes several components: {names}").format(names=", ".join(named)[:200])
        origin: PathKey = (f"component:{named[0]}",)
        raise DocumentError([source.problem(origin, source.key_mark(origin), message, _by_command())])
    if said is None:
        message = _("this configuration of torchx has options of schedulers alone, and no component")
        raise DocumentError([source.problem((), Mark(1, 1), message, _by_command())])
    return _checked(source, said, (_RUN, "component"))


def _checked(source: YamlSource, component: str, origin: PathKey) -> tuple[str, PathKey]:
    if component in _TAKEN:
        return component, origin
    message = _("the component {component} is no component of torchx's dist").format(component=shown(component))
    if ".py:" in component:
        message = _("the component {component} is a function of the project: what it starts is not said here")
        message = message.format(component=shown(component))
    hint = _("Import the command that the component starts.")
    raise DocumentError([source.problem(origin, source.key_mark(origin), message, hint)])


def _with_notes(part: Translated, source: YamlSource, sections: dict[str, dict[str, str]], taken: str) -> Translated:
    """Return the job with a note for each section that says nothing about it."""
    notes = list(part.notes)
    for section in sections:
        keys = [key for key in sections[section] if (section, key) != (_RUN, "component")]
        if section != taken and keys:
            message = _("not carried over: torchx's own: {keys}").format(keys=", ".join(keys)[:200])
            notes.append(make_note(source, (section,), message))
    return replace(part, notes=in_order(notes))


def _read(text: str, name: str) -> YamlSource:
    """Return the file as a document: of section to its settings. Raises DocumentError where it is no INI file."""
    lines = text.splitlines()
    sections: dict[str, tuple[Mark, dict[str, Value]]] = {}
    current: dict[str, Value] | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", ";")):
            continue
        head, setting = _HEAD.fullmatch(line.strip()), _SETTING.fullmatch(line.strip())
        if head is not None:
            current = sections.setdefault(head[1], (Mark(number, 1), {}))[1]
        elif setting is not None and current is not None and not line.startswith((" ", "\t")):
            current.setdefault(setting[1], Value(Mark(number, line.index(setting[1]) + 1), setting[2], open=False))
        elif current and line.startswith((" ", "\t")):
            last = current[next(reversed(current))]
            last.data = f"{last.data} {line.strip()}".strip()
        else:
            message = _("expected [SECTION] or KEY = VALUE, found {value}").format(value=shown(line.strip()))
            raise DocumentError([Problem(name, message, line=number, column=1, source_line=printable(line))])
    return _as_source(name, tuple(lines), sections)


def _at_head(head: Mark, place: Mark) -> Mark:
    return head if place == Mark(1, 1) else place


def _as_source(name: str, lines: tuple[str, ...], sections: dict[str, tuple[Mark, dict[str, Value]]]) -> YamlSource:
    document = table_source(name, lines, [])
    for section, (mark, settings) in sections.items():
        entries = [(key, value.mark, value.data, value.mark) for key, value in settings.items()]
        part = table_source(name, lines, entries)
        document = document.with_part(section, part, partial(_at_head, mark))
    return document
