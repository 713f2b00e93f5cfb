"""dstack tasks: the script of `commands`, followed as dstack runs it on each node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.products.dstack_gpus import gpu_wish
from dttui.spec.dialects.products.embedded import EmbeddedScript, ScriptContext, check_program, joined
from dttui.spec.dialects.products.gpus import MOST_NODES, GpuWish, number, size, with_gpus
from dttui.spec.dialects.products.job_variables import JobVariables
from dttui.spec.dialects.products.node_addresses import addresses, without_addresses
from dttui.spec.dialects.products.product_kind import Outside
from dttui.spec.dialects.products.remainders import note_image, note_rest, note_section, within_directory
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.problems import DocumentError, PathKey, shown
from dttui.spec.yaml_source import YamlSource

_COMMANDS: PathKey = ("commands",)
_GPU: PathKey = ("resources", "gpu")
_FILLED_IN = re.compile(r"\$\{\{\s*([A-Za-z_][\w.]{0,60})\s*\}\}")
_SECRET = re.compile(r"\$\{\{\s*secrets\.(\w+)\s*\}\}")


def translate(source: YamlSource, outside: Outside) -> Translated:
    """Carry a task over. Raises DocumentError with every problem of it."""
    translation = Translation(source)
    data: Mapping[str, Any] = source.data
    translation.use(("type",), _COMMANDS)
    nodes = _nodes(source)
    wish = _gpus(translation)
    variables = JobVariables(translation, outside.variables)
    _carry_variables(variables, translation)
    variables.finish()
    script = _script(source)
    _carry_rest(translation, nodes)
    document = translation.finish()
    given = {**variables.values, **_given(nodes, wish), **outside.variables}
    part = ScriptContext("dstack", _COMMANDS, given, outside.read).follow(script, source)
    check_program(part, "dstack", script.text)
    job = with_gpus(joined(document, without_addresses(part)), wish, _GPU, script.text)
    directory = data.get("working_dir")
    return within_directory(job, directory, ("working_dir",)) if isinstance(directory, str) else job


def _nodes(source: YamlSource) -> int:
    said = source.value(("nodes",))
    nodes = number(said, MOST_NODES) if said is not None else 1
    if not nodes:
        message = _("expected a number of nodes, found {value}").format(value=shown(said))
        raise DocumentError([source.problem(("nodes",), source.mark(("nodes",)), message)])
    return nodes


def _gpus(translation: Translation) -> GpuWish:
    said = translation.said(_GPU)
    translation.use(_GPU)
    wish = gpu_wish(said)
    if wish is None:
        message = _("expected GPUs such as A100:80GB:8, found {value}").format(value=shown(said))
        raise DocumentError([translation.source.problem(_GPU, translation.source.mark(_GPU), message)])
    if wish.is_least:
        message = _("of several numbers of GPUs the least is taken: {count}").format(count=wish.count)
        translation.note(_GPU, message)
    return wish


def _script(source: YamlSource) -> EmbeddedScript:
    commands = source.value(_COMMANDS)
    script = EmbeddedScript(source)
    items = commands if isinstance(commands, tuple) else ()
    texts = [(item, (*_COMMANDS, index)) for index, item in enumerate(items) if isinstance(item, str) and item.strip()]
    if not texts:
        message = _("what this task starts is not said here, but by its image: it has no commands")
        raise DocumentError([source.problem(_COMMANDS, source.key_mark(_COMMANDS), message)])
    for text, origin in texts:
        script.add(_FILLED_IN.sub(lambda match: "$" + match[1].upper().replace(".", "_"), text), origin)
    return script


def _given(nodes: int, wish: GpuWish) -> dict[str, str]:
    """Return what dstack sets on the first node."""
    each = wish.count or 0
    return {
        "DSTACK_NODE_RANK": "0",
        "DSTACK_NODES_NUM": str(nodes),
        "DSTACK_GPUS_PER_NODE": str(each),
        "DSTACK_GPUS_NUM": str(each * nodes),
        "DSTACK_MASTER_NODE_IP": addresses(1),
        "DSTACK_NODES_IPS": addresses(nodes),
        "DSTACK_RUN_NAME": "${JOB_ID}",
        "DSTACK_RUN_ID": "${JOB_ID}",
        "DSTACK_JOB_ID": "${JOB_ID}",
    }


def _carry_variables(variables: JobVariables, translation: Translation) -> None:
    said = translation.said(("env",))
    if isinstance(said, Mapping):
        for name, value in said.items():
            _give(variables, name, value, ("env", name))
    elif isinstance(said, tuple):
        for index, item in enumerate(said):
            name, separator, value = item.partition("=") if isinstance(item, str) else (item, "", "")
            _give(variables, name, value if separator else None, ("env", index))
    translation.use(("env",))


def _give(variables: JobVariables, name: object, value: object, origin: PathKey) -> None:
    secret = _SECRET.fullmatch(value.strip()) if isinstance(value, str) else None
    variables.give(name, None if secret is not None else value, origin)


def _carry_rest(translation: Translation, nodes: int) -> None:
    """Carry over what is said besides, or say why not."""
    if nodes > 1:
        translation.expect_nodes(("nodes",), nodes)
    name = translation.said(("name",))
    if isinstance(name, str) and name.strip():
        translation.carry(("name",), ("name",), name[:120])
    cores = translation.said(("resources", "cpu"))
    least = number(str(cores).split("..")[0]) if isinstance(cores, (int, str)) else None
    if least:
        translation.carry(("resources", "cpu"), ("resources", "cpu", "cores"), least)
    if memory := size(translation.said(("resources", "memory"))):
        translation.carry(("resources", "memory"), ("resources", "cpu", "memory"), memory)
    note_image(translation, ("image",))
    translation.use(("nodes",), ("working_dir",))
    message = _("not carried over: which machines there are is said by the inventory")
    note_section(translation, ("resources",), message)
    note_rest(translation, _("not carried over: dstack's own"))
