"""Fills the holes of a Plan for one attempt. Pure."""

from __future__ import annotations

import json
import posixpath
from collections import ChainMap

from dttui.errors import LaunchError
from dttui.frameworks.bundle import Hole, PlannedProcess, address_hole, fill, gpu_hole, holes_in, port_hole
from dttui.frameworks.parts.container import with_checkpoint
from dttui.i18n import _
from dttui.planning.models import Bindings, BoundPlan, NodeBinding, Plan, PlannedNode
from dttui.planning.resumption import CHECKPOINT_DIR, Resumption, arguments, directory_of, variables
from dttui.words import gpu_numbers

_LONG = 1000
"""Characters from which on it is looked whether a text is alike on all nodes."""


def bind(plan: Plan, bindings: Bindings) -> BoundPlan:
    """Return the plan with its holes filled.

    A variable that names the network interface is left out where the host could not tell it.

    Raises:
        LaunchError: a node has no binding, or fewer GPUs than it needs, or a checkpoint tells no step and has to.
    """
    shared: dict[str, str] = {}
    for node in plan.nodes:
        binding = bindings.nodes.get(node.name)
        if binding is None:
            raise LaunchError(_("{node} has not answered how it is to be started").format(node=node.name))
        if len(binding.gpu_ids) < node.cuda_slots:
            message = _("{node} set aside {given} GPUs of {wanted}")
            message = message.format(node=node.name, given=len(binding.gpu_ids), wanted=node.cuda_slots)
            raise LaunchError(message, _("Other processes may hold them; choose fewer GPUs or another environment."))
        if node.gpu_ids and binding.gpu_ids != node.gpu_ids:
            message = _("{node} set aside GPU {given}, and GPU {wanted} was asked for")
            message = message.format(
                node=node.name, given=gpu_numbers(binding.gpu_ids), wanted=gpu_numbers(node.gpu_ids)
            )
            raise LaunchError(message, _("Upgrade it: dttui agents deploy {host}").format(host=node.name))
        shared[address_hole(node.node_rank)] = node.address
        if binding.port is not None:
            shared[port_hole(node.node_rank)] = str(binding.port)
    inside = plan.python_inside
    plain, quoted = _Filler(shared), _Filler({hole: _quoted(value) for hole, value in shared.items()})
    nodes = tuple(
        _bound_node(
            _of_attempt(node, plan.resumption, bindings),
            _values(bindings, bindings.nodes[node.name], inside),
            plain,
            quoted,
        )
        for node in plan.nodes
    )
    return BoundPlan(plan=plan.model_copy(update={"nodes": nodes}), bindings=bindings)


def checkpoint_directory(node: PlannedNode) -> str | None:
    """Return where the processes of a node that is bound find `DTTUI_CHECKPOINT_DIR`; an absolute path on its host."""
    for process in node.processes:
        if told := process.env.get("DTTUI_CHECKPOINT_DIR"):
            return posixpath.normpath(posixpath.join(process.cwd, told))
    return None


def _of_attempt(node: PlannedNode, resumption: Resumption, bindings: Bindings) -> PlannedNode:
    """Return a node with what an attempt after the first tells its processes besides."""
    if bindings.attempt == 0:
        return node
    processes = []
    for process in node.processes:
        told = process.env.get(CHECKPOINT_DIR)
        own = directory_of(told, bindings.attempt) if told is not None else ""
        added = {} if process.is_service else variables(bindings.resume, node.name)
        env = {**process.env, **({CHECKPOINT_DIR: own} if told is not None else {}), **added}
        place = posixpath.join(process.cwd, own)
        more = () if process.is_service else arguments(resumption, bindings.attempt, place, bindings.resume, node.name)
        going_on = process.model_copy(update={"env": env, "argv": (*process.argv, *more)})
        for name, path in added.items():
            going_on = with_checkpoint(going_on, name, path, _mounted_for(path, bindings.nodes[node.name].directory))
        processes.append(going_on)
    return node.model_copy(update={"processes": tuple(processes)})


def _mounted_for(path: str, directory: str) -> str:
    """Return the directory with which a container sees a checkpoint: of one in a job's own, what holds all jobs'.

    That one is on each host; where one node has written all, the checkpoint is not.

    Args:
        path: of the checkpoint.
        directory: of the attempt that goes on from it.
    """
    jobs = posixpath.dirname(posixpath.dirname(directory))
    return jobs if path.startswith(f"{jobs}/") else posixpath.dirname(path)


def _values(bindings: Bindings, binding: NodeBinding, python: str | None) -> dict[str, str]:
    values = {
        Hole.JOB_ID.value: bindings.job_id,
        Hole.ATTEMPT.value: str(bindings.attempt),
        Hole.MASTER_PORT.value: str(bindings.master_port),
        Hole.GPU_IDS.value: ",".join(str(index) for index in binding.gpu_ids),
        Hole.DIRECTORY.value: binding.directory,
        Hole.PAYLOAD.value: binding.payload,
        Hole.PYTHON.value: python or binding.python,
        **{gpu_hole(index): str(gpu_id) for index, gpu_id in enumerate(binding.gpu_ids)},
    }
    if binding.user_ids:
        values[Hole.USER_IDS.value] = binding.user_ids
    if binding.interface:
        values[Hole.INTERFACE.value] = binding.interface
    return values


class _Filler:
    """Fills texts, and those that are alike on all nodes only once: what tells of every node grows with them."""

    def __init__(self, shared: dict[str, str]) -> None:
        self._shared = shared
        self._filled: dict[str, str] = {}

    def fill(self, text: str, own: dict[str, str]) -> str:
        """Fill the holes that mean the same on each node, and those of this one."""
        if text not in self._filled:
            if "${" not in text:
                return text
            if len(text) < _LONG or not holes_in(text) <= self._shared.keys():
                return fill(text, ChainMap(own, self._shared))
            self._filled[text] = fill(text, self._shared)
        return self._filled[text]


def _bound_node(node: PlannedNode, own: dict[str, str], plain: _Filler, quoted: _Filler) -> PlannedNode:
    in_quotes = {hole: _quoted(value) for hole, value in own.items()}
    files = tuple(
        file.model_copy(update={"own": quoted.fill(file.own, in_quotes), "shared": quoted.fill(file.shared, in_quotes)})
        for file in node.files
    )
    processes = tuple(_bound_process(process, own, plain) for process in node.processes)
    health = node.health
    if health is not None:
        argv = tuple(plain.fill(argument, own) for argument in health.argv)
        health = health.model_copy(update={"argv": argv, "cwd": plain.fill(health.cwd, own)})
    return node.model_copy(update={"files": files, "processes": processes, "health": health})


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _bound_process(process: PlannedProcess, own: dict[str, str], plain: _Filler) -> PlannedProcess:
    environment = {
        name: plain.fill(value, own)
        for name, value in process.env.items()
        if Hole.INTERFACE.value in own or Hole.INTERFACE.value not in holes_in(value)
    }
    return process.model_copy(
        update={
            "argv": tuple(plain.fill(argument, own) for argument in process.argv),
            "env": environment,
            "cwd": plain.fill(process.cwd, own),
            "removal": tuple(plain.fill(argument, own) for argument in process.removal),
            "python_path": plain.fill(process.python_path, own),
        }
    )
