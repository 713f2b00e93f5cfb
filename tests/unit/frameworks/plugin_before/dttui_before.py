"""A plug-in as it was written for dttui before frameworks had traits: all members by themselves, some left out."""

from dttui.frameworks.base import JobLayout, NodeLayout, Rank, ScriptImports
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess, port_hole
from dttui.frameworks.parts.environment import process_environment, rank_environment
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job
from dttui.spec.section import Section


class BeforeOptions(Section):
    """What can be told about it."""

    greeting: str = "hello"
    """What the first line says."""


class Before:
    """Starts a script once a node."""

    name = "before"
    label = "Before"
    summary = "once a node"
    description = "A launcher of before."
    features = ("one process a node",)
    requires = ("before-launcher",)
    options = BeforeOptions
    rank = Rank.NODE
    needs_ports = True
    available = True

    @property
    def script_imports(self) -> ScriptImports:
        return ScriptImports(("before",), "nothing reads hosts.txt")

    def check(self, job: Job) -> list[Finding]:
        if job.run is not None and job.run.warm_start:
            return [error("run-mismatch", "run.warm_start", "it cannot be started warm", "Leave it out.")]
        return []

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        return []

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        return (layout.shared_file(_hosts),)

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        (rank,) = node.ranks
        own = {**rank_environment(layout, node, 0, rank), "GREETING": layout.options_as(BeforeOptions).greeting}
        return (
            PlannedProcess(
                name=str(rank),
                argv=(str(Hole.PYTHON), layout.run.script or "", *layout.run.args),
                env=process_environment(layout, node, own),
                cwd=layout.cwd,
                rank=rank,
            ),
        )


def _hosts(layout: JobLayout) -> PlannedFile:
    lines = [f"{node.address}:${{{port_hole(node.node_rank)}}}\n" for node in layout.nodes]
    return PlannedFile(path="hosts.txt", text="".join(lines))
