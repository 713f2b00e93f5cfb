"""The target `scripts`: a directory a node with a script that starts it, and what to paste into which terminal."""

from __future__ import annotations

import shlex

from dttui.export.contents import PAYLOAD, Export
from dttui.export.readme import code, readme
from dttui.export.rendered import Rendered
from dttui.export.run_script import KEY_FILE, run_script
from dttui.i18n import _
from dttui.inventory.models import Environment, Reach
from dttui.planning.job_sources import SENT_DIRECTORY


def render_scripts(export: Export) -> list[Rendered]:
    """Return the directories of all nodes, with a README."""
    return [*node_files(export), Rendered("README.md", readme(export, _start(export)))]


def node_files(export: Export) -> list[Rendered]:
    """Return what every node needs, whoever starts its `run.sh`."""
    files = [
        Rendered(f"{SENT_DIRECTORY}/{file.relative}", opened=file.open, executable=file.executable)
        for file in export.work or ()
    ]
    files += [Rendered(f"payload/{file}", source=PAYLOAD / file) for file in export.payload]
    for node in export.plan.nodes:
        files.append(Rendered(f"node{node.node_rank}/run.sh", run_script(export, node), executable=True))
        if export.work is not None:
            files.append(Rendered(f"node{node.node_rank}/{SENT_DIRECTORY}", link=f"../{SENT_DIRECTORY}"))
    return files


def _start(export: Export) -> str:
    """Return the commands that bring the directory to each host and start it there."""
    name, nodes = export.name, export.plan.nodes
    is_alone = len(nodes) == 1
    parts = []
    if export.plan.min_nodes is not None:
        told = _("Make the key by which the nodes know each other, anew for each run. Here, in this directory:")
        parts += [told, code([f"(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >{KEY_FILE})"])]
    copies = [line for item in export.environments for line in _copying(item, name)]
    if copies:
        copying = _("Copy this directory to every host. Here, in this directory:")
        if is_alone:
            copying = _("Copy this directory to the host. Here, in this directory:")
        parts += [copying, code(copies)]
    else:
        parts += [_("The node is this machine.") if is_alone else _("All nodes are on this machine.")]
    starting = _("Then start every node in a terminal of its own, in any order, within {seconds:g} seconds:").format(
        seconds=export.plan.rendezvous_timeout_s
    )
    parts.append(_("Then start it:") if is_alone else starting)
    starts = []
    pairs = list(zip(nodes, export.environments, strict=True))
    for node, item in pairs:
        starts.append(_starting(item, name, f"node{node.node_rank}/run.sh"))
    parts.append(code(starts))
    ending = _(
        "Ctrl-C ends a node. Where one fails, end the others too: nobody does that for you here, and they would "
        "wait for it."
    )
    if export.plan.min_nodes is not None:
        ending = _(
            "Ctrl-C ends a node. The others begin anew without one that has ended, as long as the master and {count} "
            "nodes in all are left."
        ).format(count=export.plan.min_nodes)
    parts.append(_("Ctrl-C ends it.") if is_alone else ending)
    if reached := [f"`node{node.node_rank}`" for node, item in pairs if item.reach is Reach.EXEC]:
        told = _(
            "Ctrl-C may end no more than the command that reaches {nodes}. What was started there then ends by TERM to "
            "its run.sh."
        )
        parts.append(told.format(nodes=", ".join(reached)))
    if serving := [f"`node{node.node_rank}`" for node in nodes if node.serves_only]:
        told = _(
            "Nodes that only serve the others, {nodes}, never end by themselves. Once the others have ended, end them, "
            "too: by Ctrl-C, or TERM to their run.sh."
        )
        parts.append(told.format(nodes=", ".join(serving)))
    return "\n\n".join(parts)


def _copying(environment: Environment, name: str) -> list[str]:
    """Return the commands that bring this directory to a host."""
    match environment.reach:
        case Reach.LOCAL:
            return []
        case Reach.EXEC:  # Words alone: whether a shell reads them there, only the command knows.
            reach = shlex.join(environment.exec or ())
            return [f"{reach} mkdir -p {name}", f"tar -c . | {reach} tar -x -C {name}"]
        case Reach.SSH:
            return [f"tar -c . | {_ssh(environment)} 'mkdir -p {name} && tar -x -C {name}'"]


def _starting(environment: Environment, name: str, script: str) -> str:
    """Return the command that starts a node."""
    match environment.reach:
        case Reach.LOCAL:
            return f"bash {script}"
        case Reach.EXEC:
            return f"{shlex.join(environment.exec or ())} bash {name}/{script}"
        case Reach.SSH:
            return f"{_ssh(environment, '-t')} bash {name}/{script}"


def _ssh(environment: Environment, *options: str) -> str:
    words = ["ssh", *options]
    for option, value in (
        ("-p", environment.port),
        ("-i", environment.identity_file),
        ("-J", environment.proxy_jump),
        ("-o", f"UserKnownHostsFile={environment.known_hosts}" if environment.known_hosts else None),
    ):
        words += [option, str(value)] if value is not None else []
    host = (environment.host or "").strip("[]")
    words.append(f"{environment.user}@{host}" if environment.user else host)
    return shlex.join(words)
