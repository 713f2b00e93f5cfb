"""README.md of manifests for Kubernetes: what to apply, in which order, and what the cluster must have."""

from __future__ import annotations

from dttui.export.contents import Export
from dttui.export.readme import code, left_to_nccl, packages_needed, section, table
from dttui.i18n import _, ngettext
from dttui.sanitize import clean
from dttui.words import listed

MAX_NAMES = 8
_APPLY = "kubectl apply --server-side -f"


def kubernetes_readme(export: Export, name: str, image: str, first: str, *, has_volume: bool) -> str:
    """Return the text.

    Args:
        export: the job.
        name: of all objects.
        image: of all pods.
        first: name of the replicated job that rank 0 is in.
        has_volume: whether the working directory is on a volume that has to be filled first.
    """
    plan = export.plan
    what = ngettext(
        "{job}, as `dttui render --target kubernetes` has written it: {framework}, backend {backend}, "
        "world size {size}, {count} pod of the image `{image}`.",
        "{job}, as `dttui render --target kubernetes` has written it: {framework}, backend {backend}, "
        "world size {size}, {count} pods of the image `{image}`.",
        len(plan.nodes),
    ).format(
        job=clean(plan.job_name),
        framework=plan.framework,
        backend=plan.backend,
        size=plan.world_size,
        count=len(plan.nodes),
        image=image,
    )
    parts = [f"# {clean(plan.job_name)}", what]
    commands = []
    if plan.secrets:
        # As words of the command other users of this host could read them.
        values = " ".join(f'--from-file={item}=<(printf %s "${{{item}:?}}")' for item in plan.secrets)
        commands.append(f"kubectl create secret generic {name}-secrets {values}")
    if has_volume:
        commands += [
            "kubectl apply -f work.yaml",
            f"kubectl wait --for=condition=Ready pod/{name}-copy --timeout=10m",
            f"kubectl cp work/. {name}-copy:/work",
            f"kubectl delete pod {name}-copy",
        ]
    commands.append(f"{_APPLY} files.yaml")
    start = "\n\n".join(
        [
            code([*commands, f"{_APPLY} trainjob.yaml"]),
            _("That is for a cluster with Kubeflow Trainer 2. With JobSet alone, instead of the last line:"),
            code([f"{_APPLY} jobset.yaml"]),
            _("To follow rank 0, and to end the job:"),
            code(
                [
                    f"kubectl logs --tail=-1 -f -l jobset.sigs.k8s.io/jobset-name={name},"
                    f"jobset.sigs.k8s.io/replicatedjob-name={first},batch.kubernetes.io/job-completion-index=0",
                    "kubectl delete -f files.yaml -f trainjob.yaml  # " + _("or jobset.yaml"),
                    *([f"kubectl delete secret {name}-secrets"] if plan.secrets else []),
                ]
            ),
        ]
    )
    parts += [section(_("Start"), start), section(_("What is in it"), _contents(export, has_volume=has_volume))]
    return "\n\n".join([*parts, section(_("What it needs"), _needs(export))]) + "\n"


def _contents(export: Export, *, has_volume: bool) -> str:
    scripts = _("ConfigMaps: run.sh of every node, which sets the environment and starts it")
    if export.work and not has_volume:
        scripts = _("ConfigMaps: run.sh of every node, and the working directory, since it is small")
    rows = [
        ("`files.yaml`", scripts),
        ("`jobset.yaml`", _("a JobSet: one replicated job for all nodes that ask for the same")),
        ("`trainjob.yaml`", _("a TrainJob with a TrainingRuntime of its own, as ranks and addresses are settled")),
    ]
    if has_volume:
        rows.append(("`work.yaml` `work`", _("a claim for the working directory, and a pod to copy it through")))
    return table((_("file"), _("what")), rows)


def _needs(export: Export) -> str:
    plan = export.plan
    told = _("The image needs bash and what the job runs; the interpreter is `{python}`, and has to have {packages}.")
    lines = [told.format(python=clean(plan.nodes[0].python), packages=packages_needed(plan))]
    paths = {path: None for node in plan.nodes for path in node.required_paths}
    if paths:
        told = _("In every pod there must be {paths}: in the image, or on a volume that you add to the manifests.")
        lines.append(told.format(paths=", ".join(f"`{clean(path)}`" for path in paths)))
    lines += _of_hosts(export)
    if export.job.recovery.checkpoint is None:
        lines.append(_("Checkpoints go with the pod: name a volume by recovery.checkpoint.dir to keep them."))
    else:
        told = _("Checkpoints go to `{path}`: add a volume there to keep them.")
        lines.append(told.format(path=clean(export.job.recovery.checkpoint.dir)))
    if len(plan.nodes) > 1:
        told = _(
            "All pods must be scheduled and have their image within {seconds:g} s of the first, or the job fails: "
            "raise communication.rendezvous_timeout, or use a scheduler that starts them together (gang scheduling)."
        )
        lines.append(told.format(seconds=plan.rendezvous_timeout_s))
    lines += filter(None, [left_to_nccl(plan)])
    if plan.secrets:
        lines.append(
            _("Values of secrets are in no file: the command above takes them from your shell, which is bash or zsh.")
        )
    return "\n".join(f"- {line}" for line in lines)


def _of_hosts(export: Export) -> list[str]:
    """Return what the job has of its hosts, and pods have or have not."""
    lines = []
    container = export.job.run.container if export.job.run is not None else None
    if container is not None and container.mounts:
        volumes = []
        for source, path, *mode in (item.split(":") for item in container.mounts):
            told = (
                _("`{path}`, which is `{source}` of the hosts")
                if mode != ["ro"]
                else _("`{path}`, which is `{source}` of the hosts, read-only")
            )
            volumes.append(told.format(path=clean(path), source=clean(source)))
        told = _("Pods do not see directories of hosts: add a volume to the manifests for each of {volumes}.")
        lines.append(told.format(volumes="; ".join(volumes)))
    known = [(node.node_rank, export.asked_of(node), export.declared_for(node)) for node in export.plan.nodes]
    if any(a is None and b is not None for _rank, *places in known for a, b in zip(*places, strict=True)):
        lines.append(
            _(
                "Where resources.cpu of the job does not say how much cpu and memory pods request, it is what the "
                "inventory declares: lower it in the manifests where no node of the cluster has so much to give."
            )
        )
    lacking = _(
        "Nothing says how much {what} {nodes} need, so their pods request none: write resources.cpu into the job, or "
        "requests into the manifests."
    )
    for index, what in enumerate(("cpu", "memory")):
        nodes = [f"`node{rank}`" for rank, *places in known if all(place[index] is None for place in places)]
        if nodes:
            lines.append(lacking.format(what=what, nodes=listed(nodes, MAX_NAMES)))
    return lines
