"""The target `kubernetes`: `run.sh` of every node in ConfigMaps, and a JobSet or a TrainJob of Kubeflow to run them."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import yaml

from dttui.errors import UsageError
from dttui.export.contents import PAYLOAD, Export
from dttui.export.kubernetes_readme import kubernetes_readme
from dttui.export.rendered import Rendered
from dttui.export.run_script import run_script
from dttui.export.shell import comment, default
from dttui.frameworks.bundle import Hole, address_hole
from dttui.frameworks.parts.container import without_container
from dttui.i18n import _
from dttui.planning.job_sources import SENT_DIRECTORY
from dttui.planning.models import DEFAULT_PYTHON, PlannedNode
from dttui.spec.findings import Finding, warning
from dttui.spec.models import RecoveryAction

MOST_BYTES = 768 * 1024
"""Of files in one ConfigMap, which may have 1 MiB in all; a larger working directory gets a volume.

They are applied on the server's side: else kubectl keeps a copy in an annotation, which may have 256 KiB at most.
"""
MOST_FILES = 500
"""Of a working directory in a ConfigMap."""
ROOT = "/dttui"
"""Where a pod keeps what it writes itself."""
_SCRIPTS, _WORK = "/dttui-scripts", "/dttui-work"
_TRAINER = "trainer.kubeflow.org"
_STEP = {f"{_TRAINER}/trainjob-ancestor-step": "trainer"}
"""By which Kubeflow knows the Job whose number of nodes a TrainJob may set."""
_ATTEMPT = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
_START = """\
#!/usr/bin/env bash
{what}
set -euo pipefail
{exports}
rank=$((FIRST_NODE_RANK + JOB_COMPLETION_INDEX))
mkdir -p {root}/node$rank {root}/payload
cp {scripts}/node$rank.sh {root}/node$rank/run.sh
for file in {scripts}/payload-*; do
  [ ! -e "$file" ] || cp "$file" "{root}/payload/${{file#*/payload-}}"
done
{work}{wait}exec bash {root}/node$rank/run.sh
"""


@dataclass(frozen=True)
class _Group:
    """Nodes, one after the other, that ask for the same: one replicated job."""

    name: str
    first: int
    count: int
    request: Mapping[str, str]
    """Of cpu and memory, where the job or the inventory says something."""
    gpus: int
    only_serves: bool
    """Whether nothing on these nodes ends by itself."""


def _in_pod(node: PlannedNode) -> PlannedNode:
    """Return a node as a pod has it, which sees no GPUs but those that it was given, counted from 0."""
    return node.model_copy(update={"gpu_ids": ()})


def check_kubernetes(export: Export) -> list[Finding]:
    """Return what of the job's container no pod has."""
    container, (_capabilities, options) = export.plan.container, _options(export)
    found = []
    if container is not None and container.mounts:
        message = _("pods do not see directories of hosts: {mounts}").format(mounts=", ".join(container.mounts))
        found.append(
            ("mounts", message, _("Add a volume for each to jobset.yaml and trainjob.yaml; the README says where."))
        )
    if options:
        message = _("options of the engine mean nothing to Kubernetes and are left out: {options}")
        hint = _("Write what they stand for into jobset.yaml and trainjob.yaml.")
        found.append(("options", message.format(options=", ".join(options)), hint))
    return [
        warning(f"container-{key}", f"run.container.{key}", message, hint, path=("run", "container", key))
        for key, message, hint in found
    ]


def render_kubernetes(export: Export) -> list[Rendered]:
    """Return the manifests, the working directory where it is no part of them, and a README."""
    return _Manifests(export).files()


class _Manifests:
    def __init__(self, export: Export) -> None:
        plan = export.plan
        self._image = _image(export)
        # The pod is the container: what runs in it is started without one.
        nodes = tuple(
            node.model_copy(
                update={"processes": tuple(map(without_container, node.processes)), "python": _python(export)}
            )
            for node in plan.nodes
        )
        self._export = replace(export, plan=plan.model_copy(update={"nodes": nodes, "container": None}))
        self._name = export.name if export.name[0].isalpha() else f"job-{export.name}"
        self._groups = _groups(self._export)
        self._capabilities, _others = _options(export)
        self._has_volume = export.work is not None and not _is_small([file.size for file in export.work])

    def files(self) -> list[Rendered]:
        job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **self._named(), "spec": self._spec()}
        told = [Rendered("files.yaml", _documents(self._config_maps()))]
        told.append(Rendered("jobset.yaml", _documents([job_set])))
        told.append(Rendered("trainjob.yaml", _documents(self._train_job())))
        work = self._export.work or ()
        if self._has_volume:
            told.append(Rendered("work.yaml", _documents(self._volume(sum(file.size for file in work)))))
            told += [
                Rendered(f"{SENT_DIRECTORY}/{file.relative}", opened=file.open, executable=file.executable)
                for file in work
            ]
        readme = kubernetes_readme(
            self._export, self._name, self._image, self._groups[0].name, has_volume=self._has_volume
        )
        return [*told, Rendered("README.md", readme)]

    def _named(self, suffix: str = "") -> dict[str, Any]:
        return {"metadata": {"name": self._name + suffix}}

    def _train_job(self) -> list[dict[str, Any]]:
        """Return a runtime of the job's own, since ranks, addresses and files are settled; and the job that uses it."""
        api = f"{_TRAINER}/v1alpha1"
        policy = {"numNodes": self._groups[0].count}
        runtime = {"mlPolicy": policy, "template": {"spec": self._spec(_STEP)}}
        reference = {"apiGroup": _TRAINER, "kind": "TrainingRuntime", "name": self._name}
        return [
            {"apiVersion": api, "kind": "TrainingRuntime", **self._named(), "spec": runtime},
            {
                "apiVersion": api,
                "kind": "TrainJob",
                **self._named(),
                "spec": {"runtimeRef": reference, "trainer": {"numNodes": self._groups[0].count}},
            },
        ]

    def _spec(self, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the spec of a JobSet; `labels` are for the Job of the master."""
        jobs = []
        for group in self._groups:
            template: dict[str, Any] = {"spec": self._job(group)}
            if labels is not None and group.first == 0:
                template = {"metadata": {"labels": dict(labels)}, **template}
            jobs.append({"name": group.name, "replicas": 1, "template": template})
        recovery = self._export.job.recovery
        restarts = recovery.max_restarts if recovery.action is not RecoveryAction.STOP else 0
        spec: dict[str, Any] = {"failurePolicy": {"maxRestarts": restarts}}
        if any(group.only_serves for group in self._groups):
            ending = [group.name for group in self._groups if not group.only_serves]
            spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": ending}
        return {**spec, "replicatedJobs": jobs}

    def _job(self, group: _Group) -> dict[str, Any]:
        variables: list[dict[str, Any]] = [
            {"name": "FIRST_NODE_RANK", "value": str(group.first)},
            {"name": Hole.ATTEMPT.value, "valueFrom": {"fieldRef": {"fieldPath": _ATTEMPT}}},
        ]
        for secret in self._export.plan.secrets:
            source = {"secretKeyRef": {"name": f"{self._name}-secrets", "key": secret}}
            variables.append({"name": secret, "valueFrom": source})
        volumes: list[dict[str, Any]] = [
            {"name": "own", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "scripts", "projected": {"sources": [{"configMap": {"name": name}} for name in self._maps()]}},
        ]
        mounts = [
            {"name": "own", "mountPath": ROOT},
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - of the pod, where loaders and NCCL look for it
            {"name": "scripts", "mountPath": _SCRIPTS},
        ]
        if self._has_volume:
            volumes.append({"name": "work", "persistentVolumeClaim": {"claimName": f"{self._name}-work"}})
            mounts.append({"name": "work", "mountPath": f"{ROOT}/{SENT_DIRECTORY}"})
        elif self._export.work:
            items = [
                {"key": f"f{index}", "path": file.relative, "mode": 0o755 if file.executable else 0o644}
                for index, file in enumerate(self._export.work)
            ]
            volumes.append({"name": "work", "configMap": {"name": f"{self._name}-work", "items": items}})
            mounts.append({"name": "work", "mountPath": _WORK})
        container: dict[str, Any] = {
            "name": "node",
            "image": self._image,
            "command": ["bash", f"{_SCRIPTS}/start.sh"],
            "env": variables,
            "volumeMounts": mounts,
        }
        if self._capabilities:
            container["securityContext"] = {"capabilities": {"add": list(self._capabilities)}}
        resources: dict[str, dict[str, Any]] = {"limits": {"nvidia.com/gpu": group.gpus}} if group.gpus else {}
        resources |= {"requests": dict(group.request)} if group.request else {}
        container |= {"resources": resources} if resources else {}
        return {
            "backoffLimit": 0,
            "completionMode": "Indexed",
            "completions": group.count,
            "parallelism": group.count,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}},
        }

    @cached_property
    def _script_portions(self) -> list[dict[str, str]]:
        """What pods run, by the ConfigMap that holds it."""
        nodes = self._export.plan.nodes
        scripts = {f"node{node.node_rank}.sh": run_script(self._export, _in_pod(node)) for node in nodes}
        payload = {f"payload-{file.name}": (PAYLOAD / file).read_text() for file in self._export.payload}
        return _portions({"start.sh": self._start(), **scripts, **payload})

    def _start(self) -> str:
        """Return what a pod runs first: who it is, where the others are, and its `run.sh` where that may write."""
        addresses = {address_hole(rank): f"{host}.{self._name}" for rank, host in enumerate(self._hosts())}
        names = addresses if len(addresses) > 1 else {}
        exports = [f"{default(name, value)}; export {name}" for name, value in names.items()]
        master, limit_s = address_hole(0), round(self._export.plan.rendezvous_timeout_s)
        late = shlex.quote("start.sh: " + _("there is no pod of that name:"))
        waiting = (
            f'for ((second = 0; second < {limit_s}; second++)); do getent hosts "${master}" >/dev/null && break; '
            f'sleep 1; done\n[ "$second" -lt {limit_s} ] || {{ echo {late} "${master}" >&2; exit 2; }}\n'
        )
        # In the mount of a ConfigMap names are links into this directory of the kubelet's.
        is_mounted = bool(self._export.work) and not self._has_volume
        copying = f"cp -rL {_WORK}/..data/. {ROOT}/{SENT_DIRECTORY}\n" if is_mounted else ""
        making = f"mkdir -p {ROOT}/{SENT_DIRECTORY}\n{copying}ln -sfn ../{SENT_DIRECTORY} {ROOT}/node$rank/work\n"
        return _START.format(
            what=comment(_("Starts a pod as one node of the job; what Kubernetes mounts cannot be written to.")),
            exports="\n".join(exports),
            root=ROOT,
            scripts=_SCRIPTS,
            work=making if self._export.work is not None else "",
            wait=waiting if names else "",
        )

    def _hosts(self) -> list[str]:
        """Return the host name of each pod, by node rank, as JobSet makes them."""
        return [f"{self._name}-{group.name}-0-{index}" for group in self._groups for index in range(group.count)]

    def _maps(self) -> list[str]:
        return [f"{self._name}-scripts-{index}" for index in range(len(self._script_portions))]

    def _config_maps(self) -> list[dict[str, Any]]:
        found = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": portion}
            for name, portion in zip(self._maps(), self._script_portions, strict=True)
        ]
        if self._export.work and not self._has_volume:
            contents = {}
            for index, file in enumerate(self._export.work):
                with file.open() as stream:
                    contents[f"f{index}"] = stream.read()
            found.append({"apiVersion": "v1", "kind": "ConfigMap", **self._named("-work"), **_as_data(contents)})
        return found

    def _volume(self, size_bytes: int) -> list[dict[str, Any]]:
        """Return a claim that all nodes can write to, and a pod through which it is filled."""
        size = f"{max(1, -(-2 * size_bytes // 2**30))}Gi"
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": size}}}
        mount = {"name": "work", "mountPath": f"/{SENT_DIRECTORY}"}
        waiting = {"name": "copy", "image": self._image, "command": ["sleep", "3600"], "volumeMounts": [mount]}
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": f"{self._name}-work"}}
        pod = {"restartPolicy": "Never", "containers": [waiting], "volumes": [volume]}
        return [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **self._named("-work"), "spec": claim},
            {"apiVersion": "v1", "kind": "Pod", **self._named("-copy"), "spec": pod},
        ]


def _image(export: Export) -> str:
    """Return the image of all pods. Raises UsageError where nothing names one."""
    container = export.job.run.container if export.job.run is not None else None
    image = export.image or (container.image.removeprefix("docker://") if container is not None else None)
    if image is None or image.startswith("/") or "://" in image:
        told = _("Kubernetes runs images, and the job names none: give --image, as in pytorch/pytorch:2.9.0")
        if image is not None:
            told = _("{image} is no image that Kubernetes could fetch: give --image").format(image=image)
        raise UsageError(
            told, _("run.container.image of the job says it for good; it needs bash, and what the job uses.")
        )
    return image


def _options(export: Export) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the capabilities that the engine's options give the container, and the options that give none."""
    container = export.plan.container
    options = container.options if container is not None else ()
    mark = "--cap-add="
    return (
        tuple(item.removeprefix(mark).upper().removeprefix("CAP_") for item in options if item.startswith(mark)),
        tuple(item for item in options if not item.startswith(mark)),
    )


def _python(export: Export) -> str:
    return export.plan.python or DEFAULT_PYTHON


def _groups(export: Export) -> tuple[_Group, ...]:
    def kind(node: PlannedNode) -> tuple[int, tuple[tuple[str, str], ...], bool]:
        cores, memory_bytes = (
            asked if asked is not None else declared
            for asked, declared in zip(export.asked_of(node), export.declared_for(node), strict=True)
        )
        request = {"cpu": str(cores)} if cores is not None else {}
        request |= {"memory": str(memory_bytes)} if memory_bytes is not None else {}
        return node.cuda_slots, tuple(request.items()), node.serves_only

    found: list[_Group] = []
    same = [(key, list(nodes)) for key, nodes in groupby(export.plan.nodes, kind)]
    for index, ((gpus, request, serves), nodes) in enumerate(same):
        name = "node" if len(same) == 1 else f"node{index}"
        found.append(_Group(name, nodes[0].node_rank, len(nodes), dict(request), gpus, serves))
    return tuple(found)


def _is_small(sizes_bytes: Sequence[int]) -> bool:
    return len(sizes_bytes) <= MOST_FILES and sum(sizes_bytes) <= MOST_BYTES


def _portions(files: Mapping[str, str]) -> list[dict[str, str]]:
    """Return files by the ConfigMap that holds them."""
    found: list[dict[str, str]] = [{}]
    size = 0
    for name, text in files.items():
        length = len(text.encode())
        if size + length > MOST_BYTES and found[-1]:
            found.append({})
            size = 0
        found[-1][name] = text
        size += length
    return found


def _as_data(contents: Mapping[str, bytes]) -> dict[str, dict[str, str]]:
    data: dict[str, dict[str, str]] = {}
    for key, content in contents.items():
        try:
            data.setdefault("data", {})[key] = content.decode()
        except UnicodeDecodeError:
            data.setdefault("binaryData", {})[key] = base64.b64encode(content).decode()
    return data


class _Dumper(yaml.SafeDumper):
    """Writes scripts as they are, in blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _documents(items: Iterable[Mapping[str, Any]]) -> str:
    return yaml.dump_all(items, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
