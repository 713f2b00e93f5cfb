"""The container of a Kubernetes object: its command, followed, with its variables, GPUs, image and directory."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dttui.i18n import _
from dttui.spec.dialects.products.embedded import EmbeddedScript, ScriptContext, joined
from dttui.spec.dialects.products.gpus import COUNT, GpuWish, number, size, with_gpus
from dttui.spec.dialects.products.job_variables import JobVariables
from dttui.spec.dialects.products.node_addresses import without_addresses
from dttui.spec.dialects.products.product_kind import Outside
from dttui.spec.dialects.products.remainders import note_image, note_section
from dttui.spec.dialects.translation import Leaf, Translated, Translation, table_source
from dttui.spec.problems import DocumentError, PathKey, shown
from dttui.spec.yaml_source import YamlSource

Words = list[tuple[str, PathKey]]
"""A command with where each of its words stands."""
_GPU_KEY = re.compile(r"[\w.-]+/(gpu|mig-[\w.]+|Ascend\w*|npu|mlu|dcu|gcu|xpu)", re.IGNORECASE)
_EXPANDED = re.compile(r"(?<!\$)\$\(([A-Za-z_]\w*)\)")
_SHELL = re.compile(r"(ba|da|k|z|a)?sh")
_KNOWN = re.compile(r"torch|accelerate|deepspeed|mpirun|mpiexec|horovodrun|\.py\b|python|-m\b")
_COMMAND: PathKey = ("command",)


@dataclass(frozen=True)
class Pod:
    """What is started on each node."""

    translation: Translation
    path: PathKey
    """Of its container, or of what stands for one."""
    kind: str
    """What the object is, for messages."""
    variables: Mapping[str, str]
    """Those that whoever imports it gives."""

    @property
    def source(self) -> YamlSource:
        """The document."""
        return self.translation.source

    def said(self, *keys: str) -> object:
        """Return what is said below keys of the container."""
        return self.source.value((*self.path, *keys))

    def words(self) -> Words:
        """Return its command and arguments. Raises DocumentError where these are no lists."""
        words: Words = []
        arguments = self.said("args")
        if self.said("command") is None and isinstance(arguments, tuple) and arguments:
            first = _word(arguments[0])
            if first.startswith("-") or first.endswith(".py"):
                return []  # The program is the image's own.
        for key in ("command", "args"):
            said, origin = self.said(key), (*self.path, key)
            if said is not None and not isinstance(said, tuple):
                message = _("expected {wanted}, found {value}").format(wanted=_("a list"), value=shown(said))
                raise DocumentError([self.source.problem(origin, self.source.mark(origin), message)])
            words += [(_word(item), (*origin, index)) for index, item in enumerate(said or ())]
            self.translation.use(origin)
        return words

    def carry_variables(self, key: str = "env") -> dict[str, str]:
        """Carry its variables over, and return those whose values are known."""
        variables = JobVariables(self.translation, self.variables)
        items = self.said(key)
        for index, item in enumerate(items if isinstance(items, tuple) else ()):
            origin = (*self.path, key, index)
            if not isinstance(item, Mapping):
                continue
            reference = item.get("valueFrom")
            if isinstance(reference, Mapping) and "secretKeyRef" in reference:
                variables.hide(str(item.get("name")), origin)
            else:
                value = reference if reference is not None else item.get("value", "")
                variables.give(item.get("name"), value if value is not None else "", origin)
        variables.finish()
        message = _("not carried over: these variables come from an object of Kubernetes")
        note_section(self.translation, (*self.path, "envFrom"), message, _("Write run.env."), is_warning=True)
        self.translation.use((*self.path, key))
        return variables.values

    def gpus(self, key: str = "resources") -> GpuWish:
        """Return the GPUs of the container, after carrying over its CPUs and memory; none where it asks for none."""
        count: int | None = None
        for part in ("limits", "requests"):
            said = self.said(key, part)
            for name, value in said.items() if isinstance(said, Mapping) else ():
                if _GPU_KEY.fullmatch(name):
                    count = number(value) if count is None else count
        for part in ("requests", "limits"):
            self._carry_amount((*self.path, key, part, "cpu"), ("resources", "cpu", "cores"))
            self._carry_amount((*self.path, key, part, "memory"), ("resources", "cpu", "memory"))
        self.translation.use((*self.path, key))
        return GpuWish(count)

    def _carry_amount(self, origin: PathKey, target: PathKey) -> None:
        said = self.source.value(origin)
        amount: object = size(said, "") or None
        if target[-1] == "cores":
            text = str(said)
            milli = re.fullmatch(r"([0-9]{1,9})m", text)
            amount = math.ceil(int(milli[1]) / 1000) if milli is not None else number(said, 100_000)
        if amount and not self.translation.has(target):
            self.translation.carry(origin, target, amount)

    def note_rest(self) -> None:
        """Say what of the container is not carried over."""
        translation = self.translation
        note_image(translation, (*self.path, "image"))
        container = self.source.value(self.path)
        translation.use((*self.path, "name"), (*self.path, "workingDir"))
        message = _("not carried over: Kubernetes' own")
        for key in container if isinstance(container, Mapping) else ():
            if not any(translation.is_used((*self.path, key)[:length]) for length in range(1, len(self.path) + 2)):
                note_section(translation, (*self.path, key), message)


def job_of(pod: Pod, words: Words, given: Mapping[str, str], wish: GpuWish, outside: Outside) -> Translated:
    """Return the job of a document whose command is that of a container.

    Args:
        pod: what is started; of its document all else has been carried over.
        words: its command.
        given: variables that it finds, by name.
        wish: its GPUs, and how many processes a launcher starts that is not told.
        outside: what it gets from where it is imported.

    Raises:
        DocumentError: nothing in it can be started.
    """
    document = pod.translation.finish(message=_("not carried over: Kubernetes' own"))
    if not words:
        message = _("what it starts is not said here, but by its image or runtime: it has no command")
        mark = document.source.key_mark(pod.path)
        raise DocumentError(
            [document.source.problem(pod.path, mark, message, _("Import the command: dttui import -- COMMAND."))]
        )
    given = {**given, **outside.variables}
    words = [(_expanded(word, given), origin) for word, origin in words]
    script = EmbeddedScript(document.source)
    inner = _of_shell(words)
    if inner is not None:
        script.add(*inner)
    else:
        script.add_words(words)
    following = ScriptContext(pod.kind, _COMMAND, given, outside.read)
    if inner is None and not _is_known(words):
        part = following.within(_as_it_is(document, words), script, document.source)
        part = replace(part, leaves={target: replace(leaf, origin=words[0][1]) for target, leaf in part.leaves.items()})
    else:
        part = following.follow(script, document.source)
    job = with_gpus(joined(document, without_addresses(part)), wish, (*pod.path, "resources"), script.text)
    return _in_directory(job, pod)


def _word(item: object) -> str:
    if isinstance(item, bool):
        return "true" if item else "false"
    return item if isinstance(item, str) else str(item) if item is not None else ""


def _expanded(word: str, given: Mapping[str, str]) -> str:
    """Return a word as Kubernetes has it: `$(NAME)` is a variable where there is one of that name."""

    def value(match: re.Match[str]) -> str:
        found = given.get(match[1], match[0])
        return match[0] if "\n" in found else found

    return _EXPANDED.sub(value, word).replace("$$(", "$(")


def _of_shell(words: Words) -> tuple[str, PathKey] | None:
    """Return the script that a shell is given as a word, `bash -lc SCRIPT`; `None` where it is not so."""
    if not _SHELL.fullmatch(posixpath.basename(words[0][0])):
        return None
    for index, (word, _origin) in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            rest = [item for item in words[index + 1 :] if not item[0].startswith("-")]
            return rest[0] if rest else None
        if not word.startswith(("-", "+")):
            return None
    return None


def _is_known(words: Words) -> bool:
    """Whether a command can be taken apart: it has a launcher or a script of Python's."""
    first = posixpath.basename(words[0][0])
    if re.fullmatch(r"python[0-9.]*", first) and len(words) > 1 and words[1][0] == "-c":
        return False
    return _KNOWN.search(" ".join(word for word, _origin in words)) is not None and not _SHELL.fullmatch(first)


def _as_it_is(document: Translated, words: Words) -> Translated:
    """Return a command that is started once a node as it stands."""
    program = posixpath.splitext(posixpath.basename(words[0][0]))[0] or "job"
    leaves: dict[PathKey, Leaf] = {
        ("name",): Leaf(program[:120], (), is_implied=True),
        ("framework",): Leaf("command", ()),
        ("run", "command"): Leaf(tuple(word for word, _origin in words), ()),
        ("run", "per"): Leaf("node", ()),
    }
    return Translated(table_source(document.source.name, document.source.lines, ()), leaves, ())


def _in_directory(job: Translated, pod: Pod) -> Translated:
    directory = pod.said("workingDir")
    target: PathKey = ("run", "workdir")
    if not isinstance(directory, str) or not directory:
        return job
    own = job.leaves.get(target)
    whole = posixpath.normpath(posixpath.join(directory, str(own.data))) if own is not None else directory
    return replace(job, leaves={**job.leaves, target: Leaf(whole, (*pod.path, "workingDir"))})


def find_container(
    translation: Translation, template: PathKey, names: tuple[str, ...], kind: str, outside: Outside
) -> Pod:
    """Return the container of a pod's template that trains: by its name, else the first one.

    Raises:
        DocumentError: there is none.
    """
    source = translation.source
    path = (*template, "spec", "containers")
    containers = source.value(path)
    if not isinstance(containers, tuple) or not any(isinstance(item, Mapping) for item in containers):
        message = _("{kind}: there is no container").format(kind=kind)
        raise DocumentError([source.problem(path, source.key_mark(path), message)])
    places = [index for index, item in enumerate(containers) if isinstance(item, Mapping)]
    chosen = next((index for index in places if containers[index].get("name") in names), places[0])
    message = _("not carried over: another container besides")
    for index in places:
        if index != chosen:
            note_section(translation, (*path, index), message, is_warning=False)
    return Pod(translation, (*path, chosen), kind, outside.variables)


def note_template(translation: Translation, template: PathKey) -> None:
    """Say what of a pod's template is not carried over, but for its containers."""
    message = _("not carried over: Kubernetes' own")
    for section in (("metadata",), ("spec",)):
        said = translation.said((*template, *section))
        for key in said if isinstance(said, Mapping) else ():
            if key != "containers":
                note_section(translation, (*template, *section, key), message)


def note_object(translation: Translation, kept: tuple[str, ...]) -> None:
    """Carry the name of an object over, and say what of it is Kubernetes' own.

    Args:
        translation: of the object.
        kept: keys of its `spec` that are looked at elsewhere.
    """
    translation.use(("apiVersion",), ("kind",), ("status",))
    name = translation.said(("metadata", "name")) or translation.said(("metadata", "generateName"))
    key = "name" if translation.said(("metadata", "name")) else "generateName"
    if isinstance(name, str) and name.strip("-"):
        translation.carry(("metadata", key), ("name",), name.strip("-")[:120])
    message = _("not carried over: Kubernetes' own")
    note_section(translation, ("metadata",), message)
    spec = translation.said(("spec",))
    for item in spec if isinstance(spec, Mapping) else ():
        if item not in kept:
            note_section(translation, ("spec", item), message)


def first_count(job: Translated) -> int | None:
    """Return the processes of a node that a job says; `None` where it says none."""
    leaf = job.leaves.get(COUNT)
    return leaf.data if leaf is not None and isinstance(leaf.data, int) else None
