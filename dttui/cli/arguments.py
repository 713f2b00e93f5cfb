"""The command line: verbs, options and their help."""

from __future__ import annotations

from argparse import (
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Collection
from typing import Any, NoReturn

from dttui import __version__
from dttui.cli.argument_values import natural, positive, ranks, seconds
from dttui.cli.estimate_arguments import add_arguments
from dttui.cli.verb_arguments import (
    add_agents,
    add_bench,
    add_calibrate,
    add_events,
    add_fetch,
    add_history,
    add_init,
    add_job,
    add_render,
    add_replay,
)
from dttui.errors import ExitCode
from dttui.i18n import LANGUAGES, _
from dttui.spec import did_you_mean, printable

COMMANDS = {
    "apply": ("apply", "apply"),
    "again": ("again", "again"),
    "restart": ("again", "restart"),
    "stop": ("stopping", "stop"),
    "attach": ("attach", "attach"),
    "preflight": ("preflight", "preflight"),
    "bench": ("benching", "bench"),
    "plan": ("apply", "show_plan"),
    "validate": ("validating", "validate"),
    "render": ("rendering", "render"),
    "init": ("initialising", "init"),
    "ps": ("listing", "ps"),
    "history": ("listing", "history"),
    "compare": ("comparing", "compare"),
    "events": ("events", "events"),
    "status": ("inspect", "status"),
    "logs": ("inspect", "logs"),
    "diagnose": ("diagnosing", "diagnose_job"),
    "stacks": ("stacks", "stacks"),
    "fetch": ("fetching", "fetch"),
    "keep": ("keeping", "keep"),
    "replay": ("replaying", "replay"),
    "remove": ("removing", "remove_jobs"),
    "envs": ("environments", "envs"),
    "queue": ("queueing", "queue"),
    "agents": ("agents", "agents"),
    "doctor": ("doctor", "doctor"),
    "schema": ("language", "show_schema"),
    "fmt": ("language", "format_files"),
    "import": ("importing", "import_job"),
    "estimate": ("estimating", "show_estimate"),
    "recommend": ("estimating", "show_recommendation"),
    "calibrate": ("calibrating", "calibrate"),
}
"""Verb → module of this package, and the function in it."""
LAUNCHING = ("apply", "again", "restart")
"""Verbs that start a job."""
DRY = (
    *LAUNCHING,
    "stop",
    "attach",
    "remove",
    "calibrate",
    "preflight",
    "bench",
    "agents",
    "envs",
    "render",
    "init",
    "fmt",
    "import",
)
"""Verbs that do something, and say with `--dry-run` what that would be."""
BOUNDED = (*DRY, "doctor", "queue", "stacks", "fetch", "keep")
"""Verbs that take time, which `--timeout` bounds."""


class _Parser(ArgumentParser):
    """Names the nearest of the choices where a word is none of them."""

    def _check_value(self, action: Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            near = did_you_mean(str(value), map(str, action.choices))
            if near:
                told = _('there is no "{word}"; {near}').format(word=printable(str(value)), near=near)
                raise ArgumentError(action, told)
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """End with what is wrong and where the options are: of a usage of forty lines nobody reads the last one."""
        hint = _("All options: {command} --help").format(command=self.prog)
        self.exit(ExitCode.USAGE, f"{self.prog}: error: {message}\n  → {hint}\n")


class _Output(Action):
    """Keeps the form of the results, and that one was asked for: what a screen shows too is then printed."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: object, option: str | None = None) -> None:
        namespace.output, namespace.prints = values, True


class _Unread(ArgumentParser):
    """Stands for the parser of a verb that a command line does not name: nothing but its line of help is asked for."""

    def __init__(self, **_options: Any) -> None:
        """Take nothing in: to make arguments that nobody reads is what a light verb would take longest for."""

    def _ignore(self, *_arguments: Any, **_options: Any) -> Any:
        return self

    add_argument = add_argument_group = add_mutually_exclusive_group = add_subparsers = add_parser = _ignore
    set_defaults = _ignore


def make_parser(words: Collection[str] | None = None) -> ArgumentParser:
    """Return the parser of the whole command line.

    Args:
        words: of a command line; arguments of a verb that is not among them are left out. `None` leaves nothing out.
    """

    def parser_of_verb(prog: str, **options: Any) -> ArgumentParser:
        is_named = words is None or prog.rpartition(" ")[2] in words
        return _Parser(prog=prog, **options) if is_named else _Unread()

    common = ArgumentParser(add_help=False, argument_default=SUPPRESS)
    _add_common(common)
    parser: ArgumentParser = _Parser(
        prog="dttui",
        description=_("Compose, launch and watch distributed training on GPU hosts, by SSH or a command of your own."),
        formatter_class=RawDescriptionHelpFormatter,
        epilog=_(
            "exit codes: 0 ok · 1 internal error · 2 usage or invalid file · 3 preflight failed ·\n"
            "4 a host can't be reached · 5 launch failed, rolled back · 6 doctor warns ·\n"
            "100 job failed · 101 not finished · 102 no such job · 103 cancelled"
        ),
    )
    _add_common(parser)
    parser.set_defaults(
        inventory=None,
        demo=False,
        output="human",
        prints=False,
        lang=None,
        verbose=0,
        spare=None,
        interrupted="",
        unfinished="",
        tells_late=False,
        until=None,
    )
    parser.add_argument("--version", action="version", version=f"dttui {__version__}")
    parser.add_argument("--apply", metavar="JOB.YAML", help=_("run a job without the screen, to its end"))
    parser.add_argument("--detach", action="store_true", help=_("return once the job has started or was refused"))
    _add_acting(parser, dry_run=False, timeout=None)
    bounded = ArgumentParser(add_help=False, argument_default=SUPPRESS)
    _add_timeout(bounded)
    acting = ArgumentParser(add_help=False, argument_default=SUPPRESS)
    _add_acting(acting)
    new_help = _("start another one even where the same job runs already")
    parser.add_argument("--new", action="store_true", help=new_help)
    _add_sharing(parser, for_s=None, queue=False, keeps=False)
    _add_ignore(parser, default=[])
    _add_rank_logs(parser, logs=None, raw=False)
    parser.add_argument("--theme", help=_("colour theme of the screen"))
    plain_help = _("for a screen reader: a screen without lines, bars and plots")
    parser.add_argument("--plain", action="store_true", help=plain_help)
    verbs = parser.add_subparsers(dest="verb", metavar=_("VERB"), parser_class=parser_of_verb)  # type: ignore[call-overload]  # it is called, no more

    tui = verbs.add_parser("tui", parents=[common], help=_("open the screen (the default)"))
    tui.add_argument("file", nargs="?", metavar="JOB.YAML", help=_("job to start from"))
    tui.add_argument("--theme", default=SUPPRESS, help=_("colour theme of the screen"))
    tui.add_argument("--plain", action="store_true", default=SUPPRESS, help=plain_help)
    apply = verbs.add_parser("apply", parents=[common, acting], help=_("run a job without the screen, to its end"))
    apply.add_argument("file", metavar="JOB.YAML")
    detach_help = _("return once the job has started or was refused")
    apply.add_argument("--detach", action="store_true", default=SUPPRESS, help=detach_help)
    apply.add_argument("--new", action="store_true", default=SUPPRESS, help=new_help)
    _add_sharing(apply)
    _add_ignore(apply)
    _add_rank_logs(apply)
    for verb, told in (
        ("again", _("run a job once more, as it was or with other values; it is another job")),
        ("restart", _("let a job that is over go on from its newest checkpoint; it is another job")),
    ):
        again = verbs.add_parser(verb, parents=[common, acting], help=told)
        add_job(again)
        set_help = _("with this value of the job file: run.env.LR=0.1; may be given several times")
        again.add_argument("--set", dest="settings", metavar="KEY=VALUE", action="append", default=[], help=set_help)
        again.add_argument("--detach", action="store_true", default=SUPPRESS, help=detach_help)
        _add_sharing(again)
        _add_ignore(again)
        _add_rank_logs(again)
    preflight = verbs.add_parser(
        "preflight",
        parents=[common, acting],
        help=_("check a job's hosts and the network between them; start nothing"),
    )
    preflight.add_argument("file", nargs="?", metavar="JOB.YAML")
    preflight.add_argument("--nodes", metavar="A,B", help=_("check these environments, without a job"))
    preflight.add_argument(
        "--bandwidth", action="store_true", help=_("measure it too, each node to the next; plans then count on it")
    )
    _add_ignore(preflight)
    bench_help = _("measure links and collectives of hosts by a job of its own; plans then count on it")
    add_bench(verbs.add_parser("bench", parents=[common, acting], help=bench_help, description=bench_help))
    plan = verbs.add_parser(
        "plan", parents=[common], help=_("show what would run, from the job and the inventory; asks no host")
    )
    plan.add_argument("file", metavar="JOB.YAML")
    validate = verbs.add_parser(
        "validate", parents=[common], help=_("check a job file by itself, without inventory or hosts")
    )
    validate.add_argument("file", metavar="JOB.YAML")

    add_render(
        verbs.add_parser("render", parents=[common, acting], help=_("write a directory that runs a job without dttui"))
    )

    start_help = _("write a script that trains, and a job file that runs it; --list shows the templates")
    add_init(verbs.add_parser("init", parents=[common, acting], help=start_help))
    schema_help = _("print the JSON Schema of job files, inventories or the settings of the screen")
    schema = verbs.add_parser("schema", parents=[common], help=schema_help)
    schema.add_argument("of", nargs="?", choices=["job", "inventory", "settings"], default="job")
    fmt = verbs.add_parser(
        "fmt",
        parents=[common, acting],
        help=_("bring job files into one form: order of keys, indentation; comments stay"),
    )
    fmt.add_argument("file", nargs="+", metavar="JOB.YAML")
    fmt.add_argument(
        "--check", action="store_true", help=_("change nothing; exit code 2 where a file is in another form")
    )

    take = verbs.add_parser(
        "import",
        parents=[common, acting],
        help=_("make a job file of a shell script, a command line, a hostfile, a configuration of other programs"),
        epilog="dttui import run.sh -o job.yaml -- DATA=/data 8\n"
        "dttui import default_config.yaml hostfile -o job.yaml\n"
        "dttui import -- torchrun --nnodes 2 --nproc-per-node 8 train.py",
        formatter_class=RawDescriptionHelpFormatter,
    )
    take.add_argument("file", nargs="*", metavar="FILE", help=_("what is in it tells its kind"))
    take.add_argument("-o", dest="into", metavar="JOB.YAML", help=_("write a new file, instead of to the terminal"))
    take.set_defaults(command=[])

    envs = verbs.add_parser(
        "envs", parents=[common, acting], help=_("list environments; trust a host's key; import hosts")
    )
    envs.add_argument(
        "action",
        nargs="?",
        metavar="ACTION",
        default="list",
        help=_("list (the default), trust or import; any other word is an environment to list"),
    )
    envs.add_argument("name", nargs="*", metavar="NAME", help=_("environments; for import, aliases of ~/.ssh/config"))
    envs.add_argument("--fingerprint", help=_("trust: the fingerprint you were told, SHA256:…"))
    lines = verbs.add_parser(
        "queue", parents=[common, bounded], help=_("list who waits for hosts, the first one first")
    )
    lines.add_argument("name", nargs="*", metavar="NAME", help=_("environments; all of the inventory by default"))
    add_agents(
        verbs.add_parser("agents", parents=[common], help=_("the agent on hosts: deploy, status, …")),
        common,
        acting,
        bounded,
    )

    estimate = verbs.add_parser("estimate", parents=[common], help=_("what training a model costs in memory and time"))
    add_arguments(estimate, recommends=False)
    recommend = verbs.add_parser("recommend", parents=[common], help=_("which parallelism is fastest for a model"))
    add_arguments(recommend, recommends=True)
    learned_help = _("what estimates have learned from jobs that are over, each before and after; or forget it")
    add_calibrate(verbs.add_parser("calibrate", parents=[common, acting], help=learned_help))

    ps_columns = _(
        "The columns are the job's id, state, start, how long it took, nodes, ranks (`sim`: on simulated GPUs) and the "
        "reason of its state. Where the output is no terminal there is no header, and a tab between two of them."
    )
    ps = verbs.add_parser("ps", parents=[common], help=_("list jobs"), description=ps_columns)
    ps.add_argument("-a", "--all", action="store_true", help=_("finished ones too"))
    add_history(
        verbs.add_parser("history", parents=[common], help=_("list jobs that are over, and what they failed of"))
    )
    both = verbs.add_parser("compare", parents=[common], help=_("what differs between two jobs, and how they trained"))
    for place, letter in (("first", "A"), ("second", "B")):
        both.add_argument(place, metavar=letter, help=_("job id or name, the start of an id, or `last`"))
    add_events(verbs.add_parser("events", parents=[common], help=_("print all that happened in a job")))
    add_replay(verbs.add_parser("replay", parents=[common], help=_("tell a job again, at a chosen speed")))
    sick = verbs.add_parser(
        "doctor",
        parents=[common, bounded],
        help=_("say what is wrong with the login node, hosts and networks, and what mends it"),
    )
    sick.add_argument("name", nargs="*", metavar="HOST", help=_("environments; all of the inventory by default"))
    status = verbs.add_parser("status", parents=[common], help=_("show one job"))
    add_job(status)
    why = verbs.add_parser("diagnose", parents=[common], help=_("why a job failed: the first failure, and what to try"))
    add_job(why)
    stands = verbs.add_parser(
        "stacks",
        parents=[common, bounded],
        help=_("where the ranks of a running job stand: who waits for whom, and each stack"),
    )
    add_job(stands)
    stands.add_argument(
        "--rank", type=natural, action="append", metavar="N", help=_("only this rank; may be given again")
    )
    stands.add_argument("--short", action="store_true", help=_("only where they stand, without their stacks"))
    logs = verbs.add_parser("logs", parents=[common], help=_("print a job's logs"))
    logs_help = _("job id or name, the start of an id, or `last`; the one that runs by default")
    logs.add_argument("job", nargs="?", metavar="JOB", help=logs_help)
    logs.add_argument("-f", "--follow", action="store_true", help=_("go on until the job ends"))
    logs.add_argument("--node", help=_("only this node"))
    logs.add_argument("--rank", type=natural, metavar="N", help=_("only this rank"))
    logs.add_argument("--stderr", action="store_true", help=_("only standard error"))
    logs.add_argument(
        "-n", "--lines", "--tail", type=positive, metavar="N", help=_("only the last N lines of each file")
    )
    logs.add_argument("--attempt", type=natural, metavar="N", help=_("of this attempt, from 0; of the last by default"))
    logs.add_argument(
        "--since",
        metavar="10m|TIME",
        help=_(
            "only lines since then, by the times that lines carry; one without goes with the line before it, "
            "a file without any counts as a whole if it was written to since then"
        ),
    )
    _add_raw(logs)
    fetch_help = _("bring files from a job's hosts: what it has saved, or what is named; --list shows them")
    add_fetch(verbs.add_parser("fetch", parents=[common, bounded], help=fetch_help))
    keep_help = _("have a job's hosts keep what it has left there, beyond 7 days too; --off lets it go again")
    kept = verbs.add_parser("keep", parents=[common, bounded], help=keep_help)
    add_job(kept)
    kept.add_argument("--off", action="store_true", help=_("let it go when its time has come, as that of other jobs"))
    attach = verbs.add_parser(
        "attach",
        parents=[common, acting],
        help=_(
            "follow a job from any terminal, to its end; leaving does not stop it. Of one that is over, end what is "
            "left on hosts that were lost, and fetch their logs"
        ),
    )
    attach.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help=_("job id or name, the start of an id, or `last`; the one that runs by default"),
    )
    all_help = _("bring back the controllers of all jobs that go on, as when this machine has started; follow none")
    attach.add_argument("--all", action="store_true", help=all_help)
    _add_rank_logs(attach)
    stop = verbs.add_parser("stop", parents=[common, acting], help=_("stop a job"))
    stop_help = _("job id or name, the start of an id, or `last`; the one that runs by default")
    stop.add_argument("job", nargs="?", metavar="JOB", help=stop_help)
    stop.add_argument("--force", action="store_true", help=_("kill at once, without the grace period"))
    remove = verbs.add_parser(
        "remove",
        parents=[common, acting],
        help=_("remove jobs that are over from this login node; hosts are left alone"),
    )
    remove.add_argument("job", nargs="*", metavar="JOB", help=_("job id or name, the start of an id, or `last`"))
    remove.add_argument("--finished-before", metavar="30d|TIME", help=_("instead of names: all that had ended by then"))
    remove.add_argument(
        "--keep", type=natural, metavar="N", help=_("instead of names: all that are over but for the newest N")
    )
    remove.add_argument(
        "--force", action="store_true", help=_("also a job that is named of which nobody knows what has become")
    )
    remove.add_argument("--yes", action="store_true", help=_("do not ask first"))
    return parser


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse a command line. What follows `--` of `import` is another program's: it is kept word for word."""
    if "--" in arguments:
        end = arguments.index("--")
        if "import" in arguments[:end]:
            options = make_parser(arguments).parse_args(arguments[:end])
            if options.verb == "import":
                options.command = arguments[end + 1 :]
                return options
    return make_parser(arguments).parse_args(arguments)


def _add_acting(parser: ArgumentParser, **defaults: object) -> None:
    """Add what goes with verbs that do something; `defaults` are of the top parser."""
    dry_help = _("say what would be done, and on which hosts, and do nothing")
    parser.add_argument("--dry-run", action="store_true", default=defaults.get("dry_run", SUPPRESS), help=dry_help)
    _add_timeout(parser, defaults.get("timeout", SUPPRESS))


def _add_timeout(parser: ArgumentParser, default: object = SUPPRESS) -> None:
    timeout_help = _("take no longer than this, all in all, as 30s, 10m or 2h; exit code 101 where that is not enough")
    parser.add_argument("--timeout", type=seconds, metavar="30s", default=default, help=timeout_help)


def _add_common(parser: ArgumentParser) -> None:
    parser.add_argument("--inventory", metavar="FILE", help=_("inventory of environments"))
    parser.add_argument("--demo", action="store_true", help=_("use the embedded cluster: three environments here"))
    parser.add_argument("--output", action=_Output, choices=["human", "json", "jsonl"], help=_("format of the results"))
    parser.add_argument("--lang", choices=LANGUAGES, help=_("language of messages"))
    parser.add_argument("-v", "--verbose", action="count", help=_("say more; twice for SSH too"))


def _add_rank_logs(parser: ArgumentParser, **defaults: object) -> None:
    """Add whose lines are shown; `defaults` are of the top parser, which those of verbs must not undo."""
    logs_help = _(
        "show what these ranks print: all, none, or numbers such as 0,3; 0 by default, none with --output json or jsonl"
    )
    parser.add_argument("--logs", type=ranks, metavar="RANKS", default=defaults.get("logs", SUPPRESS), help=logs_help)
    _add_raw(parser, defaults.get("raw", SUPPRESS))


def _add_raw(parser: ArgumentParser, default: object = SUPPRESS) -> None:
    raw_help = _("with the values of run.secrets that the job has printed")
    parser.add_argument("--raw", action="store_true", default=default, help=raw_help)


def _add_ignore(parser: ArgumentParser, default: object = SUPPRESS) -> None:
    explanation = _("go on in spite of this error of the preflight; may be given several times")
    parser.add_argument("--ignore", metavar="CODE", action="append", default=default, help=explanation)


def _add_sharing(parser: ArgumentParser, **defaults: object) -> None:
    """Add what hosts and others who use them are told; `defaults` are of the top parser."""
    queue_help = _("wait until the hosts have room, in the order of asking; `dttui queue` lists who waits")
    parser.add_argument("--queue", action="store_true", default=defaults.get("queue", SUPPRESS), help=queue_help)
    for_help = _("say to others who use the hosts that you need them for so long, as 30m or 8h; nothing ends then")
    parser.add_argument(
        "--for", dest="for_s", type=seconds, metavar="8h", default=defaults.get("for_s", SUPPRESS), help=for_help
    )
    keep_help = _("have hosts keep what the job leaves there, beyond 7 days too; `dttui keep JOB --off` ends that")
    keeps = defaults.get("keeps", SUPPRESS)
    parser.add_argument("--keep", dest="keeps", action="store_true", default=keeps, help=keep_help)
