"""`run.sh` of a node: what an agent would do there for the job, as a shell script that a person can read and change."""

from __future__ import annotations

import posixpath

from dttui.export.contents import Export
from dttui.export.process_start import environment, start
from dttui.export.shell import RENDERED, Shell, comment, default, default_text, in_quotes
from dttui.frameworks.bundle import Hole, address_hole, gpu_hole, port_hole
from dttui.frameworks.parts.container import ENGINES_OF_NAMES
from dttui.frameworks.parts.environment import LOGS_DIRECTORY
from dttui.i18n import _
from dttui.planning.models import PlannedNode
from dttui.spec.quantities import format_bytes

KEY_FILE = "rendezvous.key"
"""What nodes of an elastic job know each other by, beside their directories."""
_INTERFACE = """\
interface_to() {{  # {what}
  local host address source
  for host; do
    address=$(getent ahosts "$host" | awk 'NR == 1 {{print $1}}')
    source=$(ip -o route get "$address" | sed -n 's/.* src \\([^ ]*\\).*/\\1/p')
    ip -o addr show to "$source" | awk '{condition} {{print $2}}'
  done | sed -n 1p
}} 2>/dev/null"""


def run_script(export: Export, node: PlannedNode) -> str:
    """Return the script of a node."""
    return _Script(export, node).text()


def variables(export: Export) -> tuple[str, ...]:
    """Return the names of all holes that scripts have as variables."""
    nodes = export.plan.nodes
    addresses = [address_hole(node.node_rank) for node in nodes]
    ports = [port_hole(node.node_rank) for node in nodes if node.port_range is not None]
    gpus = [gpu_hole(index) for index in range(max((node.cuda_slots for node in nodes), default=0))]
    own = [RENDERED] if export.plan.container is not None else []
    return (*addresses, *(hole.value for hole in Hole), *ports, *gpus, *own)


class _Script:
    def __init__(self, export: Export, node: PlannedNode) -> None:
        self._export = export
        self._plan = export.plan
        self._node = node
        self._shell = Shell(variables(export))
        texts = [file.text for file in node.files]
        for process in node.processes:
            texts += [process.cwd, *process.argv, *process.env.values()]
        self._used = self._shell.variables_in(texts)
        if Hole.INTERFACE.value in self._used:
            self._used |= self._shell.variables_in(self._ways())
        if port_hole(0) in self._used:
            self._used.add(Hole.MASTER_PORT.value)
        if gpu_hole(0) in self._used:
            self._used.add(Hole.GPU_IDS.value)

    def text(self) -> str:
        """Return the script."""
        parts = [
            self._head(),
            self._route(),
            self._defaults(),
            self._secrets(),
            self._rendezvous_key(),
            self._paths(),
            self._room(),
            self._files(),
            environment(self._node.processes, self._shell),
            self._directories(),
            self._how_it_ends(),
            start(self._node.processes, self._shell),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _head(self) -> str:
        node = self._node
        ranks = ", ".join(str(rank) for rank in node.ranks)
        what = _("{job}: node {rank} of {count}, {name}, ranks {ranks} of {size}. Made by `dttui render`.").format(
            job=self._plan.job_name,
            rank=node.node_rank,
            count=len(self._plan.nodes),
            name=node.name,
            ranks=ranks,
            size=self._plan.world_size,
        )
        return "\n".join(
            [
                "#!/usr/bin/env bash",
                comment(what),
                "set -euo pipefail",
                'DIRECTORY=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)',
            ]
        )

    def _defaults(self) -> str:
        """Return the variables that a person may set, with what they are otherwise and why."""
        plan, export = self._plan, self._export
        settings = {
            address_hole(node.node_rank): (
                default_text(address_hole(node.node_rank), member.training_address.strip("[]")),
                _("address of {node}").format(node=node.name),
            )
            for node, member in zip(plan.nodes, export.environments, strict=True)
        }
        first = str(plan.port_range[0])
        alike = _("free on the master, alike on all nodes") if len(plan.nodes) > 1 else _("free on this host")
        settings[Hole.MASTER_PORT] = default(Hole.MASTER_PORT.value, first), alike
        for node in plan.nodes:
            name = port_hole(node.node_rank)
            port = "$MASTER_PORT" if node.node_rank == 0 else str(export.default_port(node))
            settings[name] = default(name, port), _("free on {node}, alike on all nodes").format(node=node.name)
        told = _("told to the script")
        path = plan.python_inside or self._node.python
        home, path = ("$HOME", path[1:]) if path.startswith("~/") else ("", path)
        usual = self._node.gpu_ids or range(self._node.cuda_slots)
        gpus = f"${{CUDA_VISIBLE_DEVICES:-{','.join(map(str, usual))}}}"
        counted = _("GPUs of this host, as CUDA_VISIBLE_DEVICES has them")
        if plan.container is not None and plan.container.engine in ENGINES_OF_NAMES:
            gpus = f"${{SLURM_STEP_GPUS:-{gpus}}}"
            counted = _("GPUs as this host counts them; Slurm may count those of CUDA_VISIBLE_DEVICES anew")
        ways = " ".join(map(self._shell.word, self._ways()))
        settings |= {
            Hole.PYTHON: (default_text(Hole.PYTHON.value, path, home), _("interpreter of the job")),
            Hole.GPU_IDS: (default(Hole.GPU_IDS.value, gpus), counted),
            **{
                gpu_hole(index): (f'{gpu_hole(index)}=$(cut -d, -f{index + 1} <<<"$GPU_IDS")', _("one of them"))
                for index in range(self._node.cuda_slots)
            },
            Hole.USER_IDS: (default(Hole.USER_IDS.value, "$(id -u):$(id -g)"), _("whose files are written")),
            Hole.JOB_ID: (default(Hole.JOB_ID.value, export.name), told),
            Hole.ATTEMPT: (default(Hole.ATTEMPT.value, "0"), told),
            Hole.INTERFACE: (
                default(Hole.INTERFACE.value, f"$(interface_to {ways})"),
                _("of collectives; where none is found they choose"),
            ),
        }
        found = [f"{line}  {comment(why)}" for name, (line, why) in settings.items() if name in self._used]
        if Hole.PAYLOAD.value in self._used:
            found.append("PAYLOAD=$DIRECTORY/../payload")
        if RENDERED in self._used:
            found.append(f'{RENDERED}=$(dirname -- "$DIRECTORY")')
        if not found:
            return ""
        return "\n".join([comment(_("Set from outside, each of these wins: MASTER_PORT=29600 bash run.sh")), *found])

    def _route(self) -> str:
        if Hole.INTERFACE.value not in self._used:
            return ""
        if len(self._plan.nodes) == 1:
            what, condition = _("the network interface by which this host talks with itself"), "NR == 1"
        else:
            what = _("the network interface by which this host talks with others, never loopback")
            condition = 'NR == 1 && $2 != "lo"'
        return _INTERFACE.format(what=what, condition=condition)

    def _ways(self) -> list[str]:
        """Return the addresses, of which the first that leads anywhere tells the interface.

        The master's own name may well lead to loopback there (Debian's 127.0.1.1), and that of a pod which has not
        started, nowhere.
        """
        is_master = self._node.node_rank == 0 and len(self._plan.nodes) > 1
        return [*([f"${{{address_hole(1)}}}"] if is_master else []), self._plan.master_address]

    def _secrets(self) -> str:
        if not self._plan.secrets:
            return ""
        lines = [comment(_("Secrets: their values are in no file."))]
        unset = in_quotes(_("is not set; export it first"))
        for name in self._plan.secrets:
            lines += [f': "${{{name}?{unset}}}"', f"export {name}"]
        return "\n".join(lines)

    def _rendezvous_key(self) -> str:
        if self._plan.min_nodes is None:
            return ""
        missing = in_quotes(
            _("is missing: make it anew for each run, alike on all nodes and readable by nobody else; see README.md")
        )
        why = comment(_("By it nodes know each other: who has it can run code here. torchrun removes its copy."))
        return "\n".join(
            [
                why,
                f'[ -s "$DIRECTORY/../{KEY_FILE}" ] || {{ echo "run.sh: {KEY_FILE} {missing}" >&2; exit 2; }}',
                f'rm -f "$DIRECTORY/{KEY_FILE}"',
                f'(umask 077 && cat "$DIRECTORY/../{KEY_FILE}" >"$DIRECTORY/{KEY_FILE}")',
            ]
        )

    def _paths(self) -> str:
        if not self._node.required_paths:
            return ""
        paths = " ".join(map(self._shell.word, self._node.required_paths))
        told = self._shell.word("run.sh: " + _("this host lacks") + " ")
        return f'for path in {paths}; do\n  [ -e "$path" ] || {{ echo {told}"$path" >&2; exit 2; }}\ndone'

    def _room(self) -> str:
        """Return the test of the room that the job asks for: as df counts it, in KiB."""
        lines = []
        for path, size in self._node.required_room.items():
            place, least = self._shell.word(path), size >> 10
            message = _("{path} has less room than {size}, for which resources.storage asks")
            told = self._shell.word("run.sh: " + message.format(path=path, size=format_bytes(size)))
            free = f"$(df -Pk -- {place} | awk 'NR == 2 {{print $4}}')"
            lines.append(f'[ "{free}" -ge {least} ] || {{ echo {told} >&2; exit 2; }}')
        return "\n".join(lines)

    def _files(self) -> str:
        files = self._node.files
        if not files:
            return ""
        lines = [comment(_("Files that the framework and the script read."))]
        if Hole.DIRECTORY.value in self._shell.variables_in(file.text for file in files):
            told = self._shell.word("run.sh: " + _("quotes and backslashes in the path of this directory will not do"))
            lines.append(f'case $DIRECTORY in *[\\"\\\\]*) echo {told} >&2; exit 2 ;; esac')
        for file in files:
            path = f'"$DIRECTORY"/{self._shell.word(file.path)}'
            if folder := posixpath.dirname(file.path):
                lines.append(f'mkdir -p "$DIRECTORY"/{self._shell.word(folder)}')
            lines.append(self._shell.file(path, file.text))
            if file.executable:
                lines.append(f"chmod +x {path}")
        return "\n".join(lines)

    def _directories(self) -> str:
        """Return what makes the directories that processes are told of, relative to where they start."""
        cwd = self._node.processes[0].cwd
        told = [item.env.get("DTTUI_CHECKPOINT_DIR") for item in self._node.processes if item.cwd == cwd]
        wanted = dict.fromkeys([f"{Hole.DIRECTORY}/{LOGS_DIRECTORY}", *(path for path in told if path)])
        words = map(self._shell.word, wanted)
        made = f"cd {self._shell.word(cwd)}\nmkdir -p -- {' '.join(words)} || true"
        return "\n".join([made, *(self._resumed(path) for path in wanted if self._is_of_a_run(path))])

    def _how_it_ends(self) -> str:
        """Return what tells a person at a terminal that this node waits for one; all others end such a node."""
        if not self._node.serves_only:
            return ""
        told = self._shell.word(
            "run.sh: " + _("this node only serves the others: end it once they have ended (Ctrl-C)")
        )
        return f"if [ -t 2 ]; then echo {told} >&2; fi"

    def _is_of_a_run(self, path: str) -> bool:
        """Whether a directory is for checkpoints and the job names no place for them, so that resuming may surprise."""
        return path.startswith(f"{Hole.DIRECTORY}/") and path != f"{Hole.DIRECTORY}/{LOGS_DIRECTORY}"

    def _resumed(self, path: str) -> str:
        said = _(
            "this directory has checkpoints of an earlier run: the script may resume from them; "
            "remove {path} for a fresh start"
        ).format(path=path.replace(str(Hole.DIRECTORY), f"node{self._node.node_rank}"))
        checkpoints = self._shell.word(path)
        told = self._shell.word("run.sh: " + said)
        return f'if [ -n "$(ls -A -- {checkpoints} 2>/dev/null)" ]; then echo {told} >&2; fi'
