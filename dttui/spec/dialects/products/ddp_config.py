"""A configuration of PyTorch DDP, `pytorch_ddp_config.yaml`: a process group and the nodes that form it.

Keys as torch's `init_process_group` and torchrun call them; nobody's schema, so that several spellings are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dttui.i18n import _
from dttui.spec.dialects.products.gpus import COUNT, number
from dttui.spec.dialects.products.product_kind import Outside
from dttui.spec.dialects.products.remainders import note_rest
from dttui.spec.dialects.terms import carry_backend
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.problems import DocumentError, PathKey, Problem, shown
from dttui.spec.text import HOST_NAME
from dttui.spec.yaml_source import YamlSource

_BACKENDS = ("nccl", "gloo", "mpi", "grpc")
_NAMES = ("name", "id", "hostname", "host", "ip", "address")
"""Keys by which a node is known, the inventory's own first."""
_RANKS = ("rank", "node_rank")
_GPUS = ("gpus", "gpu_ids", "devices", "gpu_count", "num_gpus", "nproc_per_node")
_EACH = ("nproc_per_node", "gpus_per_node", "local_world_size", "num_gpus")
_COUNTS = ("nnodes", "num_nodes")
_ADDRESS = re.compile(r"(?:tcp://)?\[?([^\]/]+?)\]?(?::([0-9]{1,5}))?/?")


def translate(source: YamlSource, _outside: Outside) -> Translated:
    """Carry a configuration over. Raises DocumentError with every problem of it."""
    translation = Translation(source)
    translation.put(("framework",), "pytorch-ddp", (), is_implied=True)
    section = next(((key,) for key in ("distributed", "ddp") if isinstance(source.value((key,)), Mapping)), ())
    _carry_backend(translation, section)
    hosts, counts = _carry_nodes(translation, section)
    _carry_world(translation, section, counts)
    _carry_master(translation, section, hosts)
    message = _("not carried over: every process is told its own rank")
    for key in ("rank", "node_rank", "local_rank"):
        translation.note((*section, key), message)
    note_rest(
        translation,
        _("not carried over: dttui does not act upon it"),
        _("Write it under settings, or give it to the script as one of run.args."),
    )
    return translation.finish()


def _carry_backend(translation: Translation, section: PathKey) -> None:
    origin = (*section, "backend")
    said = translation.said(origin)
    if said is None:
        return
    if not isinstance(said, str) or said.casefold() not in _BACKENDS:
        message = _("expected one of {choices}, found {value}").format(choices=", ".join(_BACKENDS), value=shown(said))
        raise DocumentError([translation.source.problem(origin, translation.source.mark(origin), message)])
    carry_backend(translation, origin)


def _carry_nodes(translation: Translation, section: PathKey) -> tuple[list[str], list[int | None]]:
    """Carry the nodes over, by their ranks; return their names and how many GPUs each has."""
    root = next((path for path in (("nodes",), (*section, "nodes")) if isinstance(translation.said(path), tuple)), None)
    if root is None:
        return [], []
    problems: list[Problem] = []
    nodes: list[tuple[int, int, str, int | None]] = []
    for index, node in enumerate(translation.said(root)):
        origin = (*root, index)
        name = node if isinstance(node, str) else _first(node, _NAMES) if isinstance(node, Mapping) else None
        if not isinstance(name, str) or not name or len(name) > 80:
            message = _("expected a node with a name or an address, found {value}").format(value=shown(node))
            problems.append(translation.source.problem(origin, translation.source.mark(origin), message))
            continue
        rank = number(_first(node, _RANKS), 1_000_000)
        nodes.append((index if rank is None else rank, index, name, _gpus(node)))
    if problems:
        raise DocumentError(problems)
    for place, (_rank, index, name, gpus) in enumerate(sorted(nodes)):
        _carry_node(translation, (*root, index), place, name, gpus)
    return [name for _rank, _index, name, _gpus in sorted(nodes)], [gpus for *_others, gpus in sorted(nodes)]


def _carry_node(translation: Translation, origin: PathKey, place: int, name: str, gpus: int | None) -> None:
    target: PathKey = ("cluster", "nodes", place)
    keys = translation.said(origin)
    key = next((key for key in _NAMES if isinstance(keys, Mapping) and key in keys), None)
    translation.put((*target, "id"), name, (*origin, key) if key is not None else origin)
    if gpus is not None:
        said = next(key for key in _GPUS if key in keys)
        translation.put((*target, "resources", "gpu", "count"), gpus, (*origin, said))
    message = _("not carried over: the address of a host is the inventory's")
    for item in keys if isinstance(keys, Mapping) else ():
        if item in ("ip", "address", "port") and item != key:
            translation.note((*origin, item), message)
        elif item in (*_NAMES, *_RANKS, *_GPUS):
            translation.use((*origin, item))
    translation.use(origin)


def _first(node: object, keys: tuple[str, ...]) -> object:
    found = (node[key] for key in keys if key in node) if isinstance(node, Mapping) else iter(())
    return next(found, None)


def _gpus(node: object) -> int | None:
    """Return how many GPUs of a node are used: a number, `[0, 1]` or `0,1`."""
    said = _first(node, _GPUS)
    if isinstance(said, tuple):
        return len(said)
    if isinstance(said, str) and "," in said:
        return len([part for part in said.split(",") if part.strip()])
    return number(said)


def _carry_world(translation: Translation, section: PathKey, counts: list[int | None]) -> None:
    """Carry over how many there are of what: `world_size` counts ranks, and in some such files nodes."""
    for key in _COUNTS:
        nodes = number(translation.said((*section, key)), 100_000)
        if nodes and not counts:
            translation.expect_nodes((*section, key), nodes)
        translation.use((*section, key))
    each = next(((*section, key) for key in _EACH if number(translation.said((*section, key)))), None)
    if each is not None:
        translation.carry(each, COUNT, number(translation.said(each)))
    origin = (*section, "world_size")
    world = number(translation.said(origin), 1_000_000)
    translation.use(origin)
    known = [count for count in counts if count is not None]
    if world is None or len(known) != len(counts) or not known:
        return
    if world == len(counts) and world != sum(known):
        message = _("{world} are the nodes: their {gpus} GPUs make {gpus} ranks")
        translation.note(origin, message.format(world=world, gpus=sum(known)))
    elif world != sum(known):
        message = _("the nodes have {there} GPUs, and the document says {total}")
        translation.note(origin, message.format(there=sum(known), total=world), is_warning=True)


def _carry_master(translation: Translation, section: PathKey, hosts: list[str]) -> None:
    """Carry the master over where it is one of the nodes; its port is chosen at the start."""
    for key in ("init_method", "dist_url", "master_addr"):
        origin = (*section, key)
        said = translation.said(origin)
        match = _ADDRESS.fullmatch(said) if isinstance(said, str) else None
        host = match[1] if match is not None else ""
        if host in hosts:
            translation.use(origin)
            translation.put(("cluster", "nodes", hosts.index(host), "role"), "master", origin)
        elif (
            host
            and not hosts
            and key != "env"
            and re.fullmatch(HOST_NAME, host)
            and host not in ("localhost", "127.0.0.1", "env")
        ):
            translation.expect_master(origin, host)
        else:
            message = _("not carried over: the first node is the master, and its port is chosen at the start")
            translation.note(origin, message)
    translation.note(
        (*section, "master_port"), _("not carried over: the port is chosen at the start, from the master's port_range")
    )
