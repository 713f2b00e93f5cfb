"""SkyPilot tasks: the script of `run`, followed as SkyPilot runs it on each node."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.products.embedded import EmbeddedScript, ScriptContext, check_program, joined
from dttui.spec.dialects.products.gpus import MOST_NODES, GpuWish, number, size, with_gpus
from dttui.spec.dialects.products.job_variables import JobVariables
from dttui.spec.dialects.products.node_addresses import addresses, without_addresses
from dttui.spec.dialects.products.product_kind import Outside
from dttui.spec.dialects.products.remainders import note_rest, note_section, within_directory
from dttui.spec.dialects.translation import Translated, Translation, in_order, make_note
from dttui.spec.problems import DocumentError, PathKey, shown
from dttui.spec.yaml_source import YamlSource

_KIND = "SkyPilot"
_RUN: PathKey = ("run",)
_ACCELERATORS: PathKey = ("resources", "accelerators")
_ACCELERATOR = re.compile(r"([A-Za-z][\w.+-]*)(?::(\d{1,4}(?:\.\d+)?))?")


def translate(source: YamlSource, outside: Outside) -> Translated:
    """Carry a task over. Raises DocumentError with every problem of it."""
    translation = Translation(source)
    data: Mapping[str, Any] = source.data
    nodes = _nodes(source)
    wish, origin = _accelerators(translation, data.get("resources"))
    variables = JobVariables(translation, outside.variables)
    _carry_variables(variables, source)
    variables.finish()
    script = EmbeddedScript(source)
    run = data.get("run")
    if not isinstance(run, str) or not run.strip():
        message = _("this task runs nothing that could be a job: it has no script under run")
        raise DocumentError([source.problem(_RUN, source.key_mark(_RUN), message)])
    script.add(run, _RUN)
    translation.use(_RUN)
    _carry_rest(translation, nodes)
    document = translation.finish()
    given = {**variables.values, **_given(nodes, wish), **outside.variables}
    part = _follow(script, ScriptContext(_KIND, _RUN, given, outside.read), source, nodes)
    check_program(part, _KIND, run)
    job = with_gpus(joined(document, without_addresses(part)), wish, origin, run)
    return _in_workdir(job, data.get("workdir"))


def _nodes(source: YamlSource) -> int:
    said = source.value(("num_nodes",))
    nodes = number(said, MOST_NODES) if said is not None else 1
    if not nodes:
        message = _("expected a number of nodes, found {value}").format(value=shown(said))
        raise DocumentError([source.problem(("num_nodes",), source.mark(("num_nodes",)), message)])
    return nodes


def _given(nodes: int, wish: GpuWish) -> dict[str, str]:
    """Return what SkyPilot sets on the first node; before 0.3 the names began otherwise."""
    values = {
        "NODE_RANK": "0",
        "NUM_NODES": str(nodes),
        "NUM_GPUS_PER_NODE": str(wish.count or 0),
        "NODE_IPS": addresses(nodes),
        "TASK_ID": "${JOB_ID}",
        "INTERNAL_JOB_ID": "${JOB_ID}",
    }
    return {f"{prefix}_{name}": value for prefix in ("SKYPILOT", "SKY") for name, value in values.items()}


def _follow(script: EmbeddedScript, following: ScriptContext, source: YamlSource, nodes: int) -> Translated:
    """Follow the script as on the first node, and say where another one would start something else."""
    part = following.follow(script, source)
    if nodes == 1 or "SKYPILOT_NODE_RANK" not in script.text:
        return part
    try:
        other = replace(following, given={**following.given, "SKYPILOT_NODE_RANK": "1"}).follow(script, source)
    except DocumentError:
        return part  # Only the first node starts something, as a launcher does that reaches the others itself.
    differing = [
        target for target, leaf in part.leaves.items() if target[0] == "run" and _differs(other, target, leaf.data)
    ]
    if not differing:
        return part
    message = _("this differs from node to node by SKYPILOT_NODE_RANK; carried over as on the first")
    hint = _("A script finds NODE_RANK in its environment.")
    note = make_note(part.source, part.leaves[differing[0]].origin, message, hint, is_warning=True)
    return replace(part, notes=in_order((*part.notes, note)))


def _differs(other: Translated, target: PathKey, data: object) -> bool:
    leaf = other.leaves.get(target)
    return leaf is None or leaf.data != data


def _accelerators(translation: Translation, resources: object) -> tuple[GpuWish, PathKey]:
    """Return the GPUs of a node, and where they are said: the first choice where there are several."""
    translation.use(_ACCELERATORS)
    if not isinstance(resources, Mapping):
        return GpuWish(0), ("resources",)
    choices: list[tuple[object, PathKey]] = [(resources.get("accelerators"), _ACCELERATORS)]
    for key in ("any_of", "ordered"):
        items = resources.get(key)
        for index, item in enumerate(items if isinstance(items, tuple) else ()):
            if isinstance(item, Mapping):
                choices.append((item.get("accelerators"), ("resources", key, index, "accelerators")))
    for said, origin in choices:
        if said is None:
            continue
        translation.use(origin)
        wish = _wish(said)
        if wish is None:
            message = _("expected accelerators such as A100:8, found {value}").format(value=shown(said))
            problem = translation.source.problem(origin, translation.source.mark(origin), message)
            raise DocumentError([problem])
        if isinstance(said, (tuple, Mapping)) and len(said) > 1:
            message = _("the first of several choices of GPUs is taken: {name}").format(name=shown(wish.name))
            translation.note(origin, message)
        return wish, origin
    return GpuWish(0), ("resources",)


def _wish(said: object) -> GpuWish | None:
    if isinstance(said, tuple):
        return _wish(said[0]) if said else None
    if isinstance(said, Mapping):
        name, count = next(iter(said.items()), ("", None))
        return _named(name, _whole(count)) if name and _whole(count) is not None else None
    match = _ACCELERATOR.fullmatch(said.strip()) if isinstance(said, str) else None
    if match is None:
        return None
    return _named(match[1], _whole(match[2] or "1"))


def _whole(count: object) -> int | None:
    """Return a number of GPUs; a part of one, `0.5`, is one."""
    try:
        value = float(count) if isinstance(count, (int, float, str)) and not isinstance(count, bool) else -1.0
    except ValueError:
        return None
    return max(int(value), 1) if 0 < value <= 1024 else None


def _named(name: str, count: int | None) -> GpuWish:
    """Return GPUs of a model as SkyPilot names it, `A100-80GB`."""
    match = re.fullmatch(r"(.+?)-(\d{1,4}GB)(-.*)?", name)
    return GpuWish(count, match[1], match[2]) if match is not None else GpuWish(count, name)


def _carry_variables(variables: JobVariables, source: YamlSource) -> None:
    for section in ("envs", "secrets"):
        said = source.value((section,))
        if said is not None and not isinstance(said, Mapping):
            message = _("expected {wanted}, found {value}").format(
                wanted=_("a mapping of keys to values"), value=shown(said)
            )
            raise DocumentError([source.problem((section,), source.mark((section,)), message)])
        for name, value in (said or {}).items():
            if section == "secrets" and value is not None:
                variables.hide(name, (section, name))
            else:
                variables.give(name, value, (section, name))


def _carry_rest(translation: Translation, nodes: int) -> None:
    """Carry over what is said besides, or say why not."""
    if nodes > 1:
        translation.expect_nodes(("num_nodes",), nodes)
    name = translation.said(("name",))
    if isinstance(name, str) and name.strip():
        translation.carry(("name",), ("name",), name[:120])
    for key, target in (("cpus", "cores"), ("memory", "memory")):
        _carry_least(translation, ("resources", key), ("resources", "cpu", target))
    message = _("not carried over: SkyPilot runs this once on each host before")
    note_section(translation, ("setup",), message, _("Run it on the hosts yourself, or write it into the script."))
    message = _("not carried over: SkyPilot brings these files to the hosts")
    note_section(translation, ("file_mounts",), message, _("What is needed has to be there, or below run.workdir."))
    message = _("not carried over: which machines there are is said by the inventory")
    note_section(translation, ("resources",), message)
    translation.use(("num_nodes",), ("workdir",))
    note_rest(translation, _("not carried over: SkyPilot's own"))


def _carry_least(translation: Translation, origin: PathKey, target: PathKey) -> None:
    said = translation.said(origin)
    if target[-1] == "cores":
        least = number(str(said).removesuffix("+")) if said is not None else None
        if least:
            translation.carry(origin, target, least)
    elif least_size := size(said):
        translation.carry(origin, target, least_size)


def _in_workdir(job: Translated, workdir: object) -> Translated:
    """Return a job whose directories are below the task's own, where that lies beside the file."""
    if workdir is None:
        return job
    origin: PathKey = ("workdir",)
    if not isinstance(workdir, str) or posixpath.isabs(workdir) or workdir.startswith(("~", "$")):
        message = _("not carried over: SkyPilot sends this directory to the hosts")
        hint = _("Put the job file into it, or write run.workdir.")
        note = make_note(job.source, origin, message, hint, is_warning=True)
        return replace(job, notes=in_order((*job.notes, note)))
    return within_directory(job, workdir, origin)
