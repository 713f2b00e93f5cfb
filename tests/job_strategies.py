"""Hypothesis strategies that make jobs out of the models themselves: every section, field and enumeration."""

from __future__ import annotations

import types
from random import Random
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dttui.spec.durations import DURATION
from dttui.spec.models import Alert, Cluster, Communication, DataSharding, GpuRequest, Job, Node, Run, Storage
from dttui.spec.monitoring import HealthCommand, MetricPattern, Monitoring
from dttui.spec.quantities import MAX_QUANTITY, BitsPerSecond, Bytes, Nanoseconds
from dttui.spec.text import ENV_NAME, IMAGE, INTERFACE_NAME, MODULE_NAME, MOUNT
from dttui.spec.yaml_writer import flow

NAMES = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=12)
"""Names that can be shown, in all scripts, quotes and YAML's own signs included."""
TEXTS = st.one_of(
    NAMES,
    st.sampled_from(["", "yes", "1e5", "~", "a: b", "# x", "- a", "a\nb", "x\u2028y", " lead", "{a: 1}", "'", "&a *a"]),
    st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc", "Cn", "Co")), max_size=20),
)
PATTERNS = {
    ENV_NAME: st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    MODULE_NAME: st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5})?", fullmatch=True),
    INTERFACE_NAME: st.from_regex(r"[a-z]{1,5}[0-9]{0,3}", fullmatch=True),
    DURATION: st.sampled_from(["30s", "5m", "1.5 h", "10min"]),
    MOUNT: st.sampled_from(["/a:/b", "/a:/b:ro", "/x y:/x:rw"]),
    IMAGE: st.sampled_from(["torch:2", "registry.example.org:5000/a/b@sha256:0", "docker://torch", "/images/t.sif"]),
}
WATCHED = st.one_of(
    st.tuples(st.just("log"), st.sampled_from(["NCCL WARN", r"(?i)error: \d+", "'a\"b|#: c$"])),
    st.tuples(st.just("metric"), st.sampled_from(["loss > 10", "gpu.utilization<5 for 10m", "eval/loss != -1e3"])),
    st.tuples(st.just("state"), st.sampled_from(["job failed", "node unknown for 90 s"])),
)
UNITS = {Bytes: ["GB", "GiB", "MB", "TB"], BitsPerSecond: ["Gbps", "Mbps"], Nanoseconds: ["ms", "us", "s", "µs"]}
FREE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def quantities(units: list[str]) -> st.SearchStrategy[str]:
    """Return quantities as people write them."""
    numbers = st.integers(0, 99999) | st.integers(0, 999).map(lambda whole: f"{whole}.5")
    return st.builds(lambda number, unit: f"{number}{unit}", numbers, st.sampled_from(units))


def sections(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Return what a document may say in a section: any choice of its fields."""
    required = {
        name: _of_field(model, name, field) for name, field in model.model_fields.items() if field.is_required()
    }
    others = {
        name: _of_field(model, name, field) for name, field in model.model_fields.items() if not field.is_required()
    }
    made = st.fixed_dictionaries(required, optional=others)
    if model is Run:
        return made.flatmap(_one_program)
    if model is Alert:
        return st.tuples(made, WATCHED).map(lambda found: _one_watched(*found))
    if model is Cluster:
        return made.map(_consistent)
    if model is Storage:
        return made.map(lambda parts: {**parts, "path": "/data"} if parts.get("size") is not None else parts)
    if model is GpuRequest:
        return made.map(_by_count_or_named)
    if model is DataSharding:
        return made.map(lambda parts: {**parts, "strategy": parts["method"]} if parts.get("method") else parts)
    if model is Communication:
        return made.map(lambda parts: {**parts, "collective_ops": None} if "collective_ops" in parts else parts)
    return made


def jobs() -> st.SearchStrategy[Job]:
    """Return jobs that a document can say."""
    return sections(Job).map(Job.model_validate)


def _one_program(parts: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    rest = {name: value for name, value in parts.items() if name not in ("script", "module", "command", "args")}
    with_args = st.fixed_dictionaries({}, optional={"args": st.lists(TEXTS, max_size=4).map(tuple)})
    scripts = st.tuples(st.just("script"), NAMES.filter(lambda name: not name.startswith("-")), with_args)
    modules = st.tuples(st.just("module"), PATTERNS[MODULE_NAME], with_args)
    words: st.SearchStrategy[Any] = st.lists(TEXTS, min_size=1, max_size=4).map(tuple)
    nothing: st.SearchStrategy[dict[str, Any]] = st.just({})
    commands = st.tuples(st.just("command"), words, nothing)
    return st.one_of(scripts, modules, commands).map(lambda found: {**rest, found[0]: found[1], **found[2]})


def _by_count_or_named(parts: dict[str, Any]) -> dict[str, Any]:
    ids = tuple(dict.fromkeys(parts.get("ids") or ()))
    return {**parts, "ids": ids, "count": len(ids)} if ids else {**parts, "ids": None}


def _one_watched(parts: dict[str, Any], watched: tuple[str, str]) -> dict[str, Any]:
    kind, what = watched
    others = ("log", "metric", "state", *(["action"] if what.startswith("job ") else []))
    return {**{name: value for name, value in parts.items() if name not in others}, kind: what}


def _consistent(parts: dict[str, Any]) -> dict[str, Any]:
    """One master at most, no node twice, and groups of nodes that there are."""
    nodes: dict[str, dict[str, Any]] = {}
    for node in parts.get("nodes", ()):
        masters = any(item.get("role") == "master" for item in nodes.values())
        nodes[node["id"]] = {**node, "role": "worker"} if masters and node.get("role") == "master" else node
    said = {**parts, "nodes": tuple(nodes.values())} if "nodes" in parts else dict(parts)
    if nodes or said.get("count") is None:
        said = {name: value for name, value in said.items() if name not in ("count", "gpus_per_node")}
    if said.get("topology") and "groups" in said["topology"]:
        groups = ({"name": f"rack {index}", "nodes": (node,)} for index, node in enumerate(nodes))
        said["topology"] = {**said["topology"], "groups": tuple(groups)}
    return said


def _of_field(model: type[BaseModel], name: str, field: FieldInfo) -> st.SearchStrategy[Any]:
    if model is Node and name == "id":
        return NAMES
    if name == "log_cap":
        return st.sampled_from(["512MiB", "4 GB", "1.5GiB"])
    if model is HealthCommand and name == "command":
        return st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
    if model is MetricPattern and name == "pattern":
        return st.sampled_from([r"return of ([-+.\deE]+)", r"'(?P<value>\d+)\"|#: (.)$"])
    if model is Monitoring and name == "metrics":
        item = _of(get_args(field.annotation)[0])
        return st.lists(item, max_size=4, unique_by=lambda said: said["name"] if isinstance(said, dict) else said).map(
            tuple
        )
    if name == "on_event":
        return st.none() | st.lists(TEXTS, min_size=1, max_size=3).map(tuple)
    if name in ("dashboard", "settings", "framework_options"):
        return st.dictionaries(NAMES, FREE, max_size=3)
    return _of(field.annotation, tuple(field.metadata))


def _of(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    for kind, units in UNITS.items():
        if annotation == kind or (metadata and get_args(kind)[1:] == metadata):
            return quantities(units)
    if get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        return _of(inner, (*metadata, *more))
    if get_origin(annotation) in (Union, types.UnionType):
        return st.one_of(*(_of(item, metadata) for item in get_args(annotation)))
    if get_origin(annotation) is Literal:
        return st.sampled_from(get_args(annotation))
    if get_origin(annotation) is tuple:
        least = _bounds(metadata).get("min_length", 0)
        return st.lists(_of(get_args(annotation)[0]), min_size=least, max_size=4).map(tuple)
    if get_origin(annotation) is dict:
        keys, values = get_args(annotation)
        return st.dictionaries(_of(keys), _of(values), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return sections(annotation)
    return _scalar(annotation, _bounds(metadata))


def _bounds(metadata: tuple[Any, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in metadata:
        for part in (item, *getattr(item, "metadata", ())):
            for name in ("gt", "ge", "le", "pattern", "min_length"):
                if getattr(part, name, None) is not None:
                    found[name] = getattr(part, name)
    return found


def _scalar(annotation: Any, bounds: dict[str, Any]) -> st.SearchStrategy[Any]:
    if annotation is type(None):
        return st.none()
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        low = bounds.get("ge", bounds.get("gt", -2) + 1 if "gt" in bounds else -100)
        return st.integers(low, bounds.get("le", MAX_QUANTITY))
    if annotation is float:
        return st.floats(1e-3, 1e15) | st.integers(1, 10**12).map(float)
    if annotation is str:
        return PATTERNS[bounds["pattern"]] if "pattern" in bounds else NAMES
    raise AssertionError(f"no values for {annotation!r}")


def styled(data: Any, random: Random) -> str:
    """Return plain data as YAML in any style: blocks, brackets, quotes, comments, blank lines, odd indentation."""
    return "\n".join(_block(data, 0, random, [0])) + random.choice(["\n", "", "\n\n# end\n"])


def _block(data: Any, indent: int, random: Random, count: list[int]) -> list[str]:
    """Return the lines of a block; `count` numbers the comments, so that no two are the same."""
    lines: list[str] = []
    deeper = indent + random.choice([2, 2, 3, 4])
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if random.random() < 0.2:
            lines += [*random.choice([[], [""]]), " " * indent + _comment(random, count, always=True).strip()]
        opener = " " * indent + (f"{flow(key, quotes=random.choice(_QUOTES))}:" if isinstance(data, dict) else "-")
        is_block = isinstance(value, (dict, list)) and value and random.random() < 0.75
        if not is_block:
            lines.append(f"{opener} {_inline(value, random, indent, count)}{_comment(random, count)}")
            continue
        inner = _block(value, deeper, random, count)
        if (
            isinstance(data, list)
            and not inner[0].lstrip().startswith("#")
            and inner[0].strip()
            and random.random() < 0.7
        ):
            lines += [opener + inner[0][indent + 1 :], *inner[1:]]
        else:
            lines += [opener + _comment(random, count), *inner]
    return lines


def _inline(value: Any, random: Random, indent: int, count: list[int]) -> str:
    if isinstance(value, list) and value and random.random() < 0.3:
        items = [f"{' ' * (indent + 3)}{flow(item)},{_comment(random, count)}" for item in value]
        return "\n".join(["[", *items, " " * (indent + 1) + "]"])
    return flow(value, quotes=random.choice(_QUOTES))


def _comment(random: Random, count: list[int], *, always: bool = False) -> str:
    if not always and random.random() < 0.7:
        return ""
    count[0] += 1
    return f"{' ' * random.randint(1, 3)}# {random.choice(['why', '为什么', 'a: b', '[x', '- y'])} {count[0]}"


_QUOTES = ("", "", "'", '"')
