"""What single verbs take, where that is more than a few words; what several take alike is in `arguments`."""

from __future__ import annotations

from argparse import ArgumentParser

from dttui.cli.argument_values import byte_size, event_kinds, final_states, natural, ranks, speed
from dttui.i18n import _


def add_agents(parser: ArgumentParser, common: ArgumentParser, acting: ArgumentParser, bounded: ArgumentParser) -> None:
    """Add the actions of `agents`, and what each takes."""
    actions = parser.add_subparsers(dest="action", required=True, metavar=_("ACTION"))
    helps = {
        "deploy": _("bring the agent of this dttui to hosts; where it is already, nothing changes"),
        "status": _("say what agent each host has, what runs there and whether it is outdated"),
        "upgrade": _("as deploy, but only where there is an agent; jobs that run go on under the version before"),
        "remove": _("take the agent off hosts; refused where a job runs"),
    }
    for name, text in helps.items():
        parents = [common, bounded if name == "status" else acting]
        action = actions.add_parser(name, parents=parents, help=text, description=text)
        action.add_argument("name", nargs="*", metavar="HOST", help=_("environments; all of the inventory by default"))
        if name in ("deploy", "upgrade"):
            action.add_argument("--wheelhouse", metavar="DIR", help=_("take the wheels from here instead of PyPI"))
            action.add_argument("--yes", action="store_true", help=_("replace newer agents by this older one too"))
        if name == "deploy":
            with_help = _(
                "bring a tool beside the agent: py-spy, by which `dttui stacks` can read any process of Python's"
            )
            action.add_argument("--with", dest="tools", action="append", default=[], metavar="TOOL", help=with_help)
        if name == "remove":
            action.add_argument("--yes", action="store_true", help=_("do not ask first"))
            action.add_argument("--force", action="store_true", help=_("stop the jobs that run there first"))
            action.add_argument("--jobs", action="store_true", help=_("also what jobs left, but for checkpoints"))
            action.add_argument("--checkpoints", action="store_true", help=_("with --jobs: checkpoints there too"))


def add_bench(parser: ArgumentParser) -> None:
    """Add what `bench` takes."""
    envs_help = _("measure these environments; all of the inventory by default")
    parser.add_argument("--envs", metavar="A,B", help=envs_help)
    job_help = _("measure the nodes of this job, with its interpreter, variables and container")
    parser.add_argument("--job", metavar="JOB.YAML", help=job_help)
    max_help = _("the largest message, 64MiB by default")
    parser.add_argument("--max", type=byte_size, metavar="64MiB", default=64 << 20, help=max_help)
    explain_help = _(
        "measure nothing: draw who sends what to whom in each round of ring, tree, butterfly, hierarchical, "
        "reduce-scatter, all-gather, broadcast, gather or scatter, and its cost by numbers"
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--explain", metavar="ALGORITHM", help=explain_help)
    parser.add_argument("--ranks", type=natural, metavar="N", default=4, help=_("with --explain: so many ranks"))
    show_help = _("measure nothing: print what was measured last between these hosts")
    instead.add_argument("--show", action="store_true", help=show_help)
    parser.add_argument("--yes", action="store_true", help=_("do not ask first"))


def add_calibrate(parser: ArgumentParser) -> None:
    """Add what `calibrate` takes."""
    parser.description = _(
        "Each job that is over leaves the time of a step and the memory that it has taken. By these, factors for "
        "computing, traffic and memory are fitted for each kind of host and precision, and estimates count with them."
    )
    drop_help = _("forget what was learned of this type of GPU or CPU, or of all")
    parser.add_argument("--drop", nargs="?", const="", metavar="KIND", help=drop_help)
    parser.add_argument("--yes", action="store_true", help=_("do not ask first"))


def add_history(parser: ArgumentParser) -> None:
    """Add what `history` takes."""
    parser.description = _(
        "The columns are those of `ps`, with the code of the cause after the state, and the number of attempts after "
        "the time that they took."
    )
    parser.add_argument("--since", metavar="7d|TIME", help=_("only jobs that were started since then"))
    state_help = _("only jobs that ended so: SUCCEEDED, FAILED or CANCELLED, or several with commas between")
    parser.add_argument("--state", type=final_states, metavar="STATES", help=state_help)
    parser.add_argument("--name", metavar="PATTERN", help=_("only jobs of this name; * stands for anything"))
    cause_help = _("only jobs that failed of this: a code as the list shows it, such as cuda-oom")
    parser.add_argument("--cause", metavar="CODE", help=cause_help)


def add_events(parser: ArgumentParser) -> None:
    """Add what `events` takes."""
    add_job(parser)
    kind_help = _("only events of this kind, or of several with commas between: job_state, finding, …")
    parser.add_argument("--kind", type=event_kinds, metavar="KINDS", help=kind_help)
    parser.add_argument("--node", help=_("only this node"))
    parser.add_argument("--since", metavar="10m|TIME", help=_("only what happened since then"))


def add_fetch(parser: ArgumentParser) -> None:
    """Add what `fetch` takes."""
    parser.description = _(
        "Without PATH: what the job's newest attempt has written since its start, checkpoints and output directories. "
        "What has come of a file stays where the link breaks, and the same command goes on from it; each file is "
        "compared with the host's by SHA-256 before it gets its name. Links, devices and pipes are left out."
    )
    add_job(parser)
    path_help = _("on the hosts: absolute, or relative to the job's working directory")
    parser.add_argument("path", nargs="*", metavar="PATH", help=path_help)
    parser.add_argument(
        "--node", action="append", default=[], metavar="N", help=_("only of this node; may be given again")
    )
    attempt_help = _("of this attempt, from 0; of the newest that has run by default")
    parser.add_argument("--attempt", type=natural, metavar="N", help=attempt_help)
    into_help = _(
        "where to; a directory of the job's id here by default, with one for each host where several have files"
    )
    parser.add_argument("-o", dest="into", metavar="DIR", help=into_help)
    parser.add_argument("--force", action="store_true", help=_("replace other files that have these names"))
    parser.add_argument("--list", action="store_true", help=_("show what there is, and bring nothing"))


def add_replay(parser: ArgumentParser) -> None:
    """Add what `replay` takes."""
    parser.description = _(
        "States, readings of hosts, what ranks report and print, in the order of time, up to now where the job runs: "
        "on a terminal on the run screen, else as text, as with --output human or jsonl."
    )
    add_job(parser)
    speed_help = _("so many times as fast as it was, 10 by default; max for all at once")
    parser.add_argument("--speed", type=speed, metavar="10|max", default=10.0, help=speed_help)
    ranks_help = _("as text, with the lines of these ranks: all, none, or numbers such as 0,3; 0 by default")
    parser.add_argument("--logs", dest="ranks", type=ranks, metavar="RANKS", default=(0,), help=ranks_help)


def add_render(parser: ArgumentParser) -> None:
    """Add what `render` takes."""
    parser.add_argument("file", metavar="JOB.YAML")
    parser.add_argument("-o", dest="into", metavar="DIR", required=True, help=_("where to write it"))
    target_help = _("scripts: run.sh for each node (the default); slurm: a batch script besides; kubernetes: manifests")
    parser.add_argument("--target", default="scripts", metavar="TARGET", help=target_help)
    parser.add_argument("--image", metavar="IMAGE", help=_("kubernetes: instead of run.container.image"))
    parser.add_argument("--yes", action="store_true", help=_("replace what DIR holds of it already, without asking"))


def add_init(parser: ArgumentParser) -> None:
    """Add what `init` takes."""
    directory_help = _("where to write it; a new directory of the template's name by default")
    parser.add_argument("directory", nargs="?", metavar="DIR", help=directory_help)
    parser.add_argument("--framework", metavar="F", help=_("the template of this framework"))
    parser.add_argument("--template", metavar="T", help=_("this template"))
    from_help = _("write script and configuration for this job, by what it splits and says")
    parser.add_argument("--from", dest="job_file", metavar="JOB.yaml", help=from_help)
    nodes_help = _("the environments to run on, the master first; the first of the inventory by default")
    parser.add_argument("--nodes", metavar="A,B", help=nodes_help)
    parser.add_argument("--list", action="store_true", help=_("show the templates, and write nothing"))
    parser.add_argument("--yes", action="store_true", help=_("replace what DIR holds of it already, without asking"))


def add_job(parser: ArgumentParser) -> None:
    """Add the job that a verb is for."""
    parser.add_argument(
        "job",
        nargs="?",
        default="last",
        metavar="JOB",
        help=_("job id or name, the start of an id, or `last`, the default"),
    )
