"""Options that do not go together, or that a verb would ignore."""

from __future__ import annotations

from argparse import Namespace

from dttui.cli.arguments import BOUNDED, DRY, LAUNCHING
from dttui.errors import UsageError
from dttui.i18n import _

OF_FILES = ("validate", "fmt", "schema")
"""Verbs that know of no environments."""


def refuse_conflicts(options: Namespace) -> None:
    """Refuse options that the verb would ignore. Raises UsageError."""
    if options.apply is not None and options.verb is not None:
        raise UsageError(
            _("--apply and {verb} exclude each other").format(verb=options.verb),
            _("Give one of them. dttui --help lists what there is."),
        )
    launches = options.apply is not None or options.verb in LAUNCHING
    if not launches:
        _refuse_of_launches(options)
    _refuse_idle(options, launches=launches)
    if options.verb == "attach" and options.all and options.job is not None:
        raise UsageError(
            _("{option} and {other} exclude each other").format(option="--all", other="JOB"), "dttui attach --all"
        )
    if options.new and (not launches or options.verb in ("again", "restart")):
        raise UsageError(_("{option} goes with --apply alone").format(option="--new"), "dttui --apply JOB.YAML --new")
    if options.verb == "agents" and options.action == "remove" and options.checkpoints and not options.jobs:
        raise UsageError(
            _("{option} goes with {other} alone").format(option="--checkpoints", other="--jobs"),
            "dttui agents remove --jobs --checkpoints",
        )
    if options.inventory is not None and options.verb in OF_FILES:
        raise UsageError(
            _("{verb} reads no inventory").format(verb=options.verb),
            _("`dttui plan JOB.YAML --inventory FILE` checks both, and asks no host."),
        )
    _refuse_rank_logs(options)
    if options.verb == "logs" and options.follow and options.output == "json":
        raise UsageError(
            _("lines that are still to come make no JSON document"), _("Use --output jsonl: a line of JSON each.")
        )


def _refuse_of_launches(options: Namespace) -> None:
    """Refuse what only a launch goes by, where there is none. Raises UsageError."""
    for option, given, example in (
        ("--detach", options.detach, "--detach"),
        ("--for", options.for_s is not None, "--for 8h"),
        ("--queue", options.queue, "--queue"),
        ("--keep", options.keeps, "--keep"),
    ):
        if given:
            raise UsageError(
                _("{option} goes with apply, again and restart").format(option=option),
                f"dttui --apply JOB.YAML {example}",
            )
    if options.ignore and options.verb != "preflight":
        raise UsageError(
            _("{option} goes with apply, again, restart and preflight").format(option="--ignore"),
            "dttui --apply JOB.YAML --ignore CODE",
        )


def _refuse_idle(options: Namespace, *, launches: bool) -> None:
    """Refuse to do nothing, or that in time, where nothing would be done. Raises UsageError."""
    looks = (options.verb, getattr(options, "action", None)) == ("agents", "status") or (
        options.verb == "envs" and options.action not in ("trust", "import")
    )
    for option, given, verbs in (
        ("--dry-run", options.dry_run, () if looks else DRY),
        ("--timeout", options.timeout is not None, BOUNDED),
    ):
        if given and not launches and options.verb not in verbs:
            raise UsageError(
                _("{option} goes with verbs that do something: {verbs}").format(
                    option=option, verbs=", ".join(DRY if option == "--dry-run" else BOUNDED)
                ),
                f"dttui --apply JOB.YAML {option}" + " 10m" * (option == "--timeout"),
            )


def _refuse_rank_logs(options: Namespace) -> None:
    """Refuse to have lines of ranks where none are shown."""
    follows = options.apply is not None or options.verb in (*LAUNCHING, "attach")
    if (options.logs is not None and not follows) or (options.raw and not (follows or options.verb == "logs")):
        given = "--raw" if options.logs is None else "--logs"
        raise UsageError(
            _("{option} goes with apply, again, restart and attach").format(option=given),
            "dttui --apply JOB.YAML --logs all",
        )
    if options.raw and follows and not options.logs and (options.logs is not None or options.output != "human"):
        raise UsageError(
            _("{option} goes with {other} alone").format(option="--raw", other="--logs"),
            "dttui --apply JOB.YAML --logs all --raw",
        )
    if options.logs:
        if options.output == "json":
            raise UsageError(
                _("lines that are still to come make no JSON document"), _("Use --output jsonl: a line of JSON each.")
            )
        if options.detach or options.dry_run:
            other = "--detach" if options.detach else "--dry-run"
            raise UsageError(
                _("{option} and {other} exclude each other").format(option="--logs", other=other),
                _("`dttui logs JOB -f` shows them at any time."),
            )
