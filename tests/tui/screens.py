"""Draws pictures of the screens from a made-up fleet and jobs: `python -m tests.tui.screens DIRECTORY [--all]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from dtagent.protocol.telemetry import GpuHold
from textual.pilot import Pilot
from textual.widgets import Button, TabbedContent, TextArea

from dttui.fleet.states import EnvironmentState
from dttui.i18n import _, set_language
from dttui.inventory.models import Inventory
from dttui.spec import Job
from dttui.spec.models import (
    Alert,
    Checkpoint,
    Cluster,
    DataParallel,
    GpuRequest,
    Model,
    Monitoring,
    Node,
    NodeResources,
    Recovery,
    Run,
    Strategy,
)
from dttui.transport.base import Prompt, PromptKind
from dttui.tui.app import DttuiApp
from dttui.tui.environment_pane import EnvironmentPane
from dttui.tui.host_work import HostAction, HostTask, TaskStage
from dttui.tui.screens.bench import BenchScreen
from dttui.tui.screens.checks import ChecksScreen
from dttui.tui.screens.dialogs import ChoiceDialog
from dttui.tui.screens.host_import import HostList, HostPicker
from dttui.tui.screens.prompt import PromptDialog
from dttui.tui.screens.section import SectionDialog
from dttui.tui.screens.section_items import ItemsDialog
from dttui.words import agent_outcome_name
from tests.tui import job_files
from tests.tui.bench_files import bench_under_way, kept_bench
from tests.tui.catalogue import compile_catalogues
from tests.tui.fake_checks import trouble
from tests.tui.fake_fleet import job, make_app, make_inventory, set_states, status
from tests.tui.looking import follow, settle, until

CHOSEN = ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")
README_SIZE = (120, 34)
SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}

FINGERPRINT = "SHA256:kK8vD3xQmYl2oT0bN5uRr1aZcWf9eHsJpGtX4iB7qLE"
HOST_KEY = Prompt(PromptKind.HOST_KEY, "gpu1.example.org", "", secret=False, fingerprint=FINGERPRINT)
PASSWORD = Prompt(PromptKind.PASSWORD, "gpu2.example.org", "li@gpu2.example.org's password:")

GREETING = (
    "\x1b[2J\x1b[HThe authenticity of host 'gpu9' can't be established.\r\n✓ trusted [/]\n[bold]Enter passphrase "
    "for key\u202e '/home/me/.ssh/id_ed25519':[/bold]\n" + "\n".join(f"line {number} of it" for number in range(60))
)
"""What a server may say before it asks: it wants to be taken for ours."""
PHISHING = Prompt(
    PromptKind.ONE_TIME_CODE, "[/]gpu2\x1b[31m.example.org" + "很" * 40, "answer for the server", secret=True,
    user="li[/b]\u202e", said=GREETING,
)  # fmt: skip

Steps = Callable[[DttuiApp, Pilot[None]], Awaitable[None]]


async def nothing(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Leave the screen as it is."""


def press(*keys: str) -> Steps:
    """Press keys."""

    async def steps(app: DttuiApp, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)

    return steps


def tab(name: str) -> Steps:
    """Show a tab of the run screen."""

    async def steps(app: DttuiApp, pilot: Pilot[None]) -> None:
        app.screen.query_one(TabbedContent).active = name

    return steps


def ask(*prompts: Prompt) -> Steps:
    """Let hosts ask a person."""

    async def steps(app: DttuiApp, pilot: Pilot[None]) -> None:
        app.asked = [asyncio.create_task(app.questions.ask(prompt)) for prompt in prompts]  # type: ignore[attr-defined]  # kept from being collected
        await until(pilot, lambda: isinstance(app.screen, PromptDialog), "a question is on screen")

    return steps


def section(name: str, items: str = "") -> Steps:
    """Open the form of a section, and in it a list."""

    async def steps(app: DttuiApp, pilot: Pilot[None]) -> None:
        await app.screen.run_action(f"section('{name}')")
        await until(pilot, lambda: isinstance(app.screen, SectionDialog), "the section is open")
        if items:
            dialog = app.screen
            assert isinstance(dialog, SectionDialog)
            dialog.query_one(f"#field-{dialog.form.nearest(items)}", Button).press()
            await until(pilot, lambda: isinstance(app.screen, ItemsDialog), "the list is open")

    return steps


async def show_file(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Show a file that all nodes get."""
    await pilot.press("p")
    await settle(app, pilot)
    await pilot.press("home", "down", "down", "right", "down")


async def mistype(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Have mistakes in the job's text."""
    await pilot.press("y")
    await settle(app, pilot)
    area = app.screen.query_one(TextArea)
    area.text = area.text.replace("framework:", "framwork:").replace("- id: llm", "- di: llm")
    await settle(app, pilot)
    await pilot.press("f8")


async def choose_framework(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Open the list of frameworks."""
    await pilot.press("f")
    await settle(app, pilot)
    await pilot.press("enter")


async def import_hosts(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Open the list of hosts to import."""
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, HostPicker), "the file is asked for")
    await until(pilot, lambda: isinstance(app.focused, HostList), "its hosts are offered")
    await pilot.press("space")


async def show_outcomes(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Show what came of something on several hosts, and how far it is on others."""
    told = _("{outcome}: {notes}").format(outcome=agent_outcome_name("installed"), notes="21.4 s, 3.1 MB")
    hint = _("Install it: dttui agents deploy {host}").format(host="llm-training-env")
    ends = (
        HostTask(HostAction.DEPLOY, TaskStage.DONE, told, agent_outcome_name("installed"), at=time.time()),
        HostTask(
            HostAction.UPGRADE,
            TaskStage.FAILED,
            _("{host}: there is no agent on this host").format(host="llm-training-env"),
            hint=hint,
            at=time.time(),
        ),
        HostTask(
            HostAction.REMOVE, TaskStage.FAILED, _("jobs run there: {jobs}").format(jobs="bert-7"), at=time.time()
        ),
        HostTask(HostAction.DEPLOY, TaskStage.UNDER_WAY, _("waiting for its turn"), at=time.time()),
    )
    app.host_work.tasks.update(zip(app.fleet.statuses, ends, strict=False))
    await pilot.press("h", "down")


def on_jobs(*keys: str) -> Steps:
    """Press keys on the list of jobs, once it is read."""

    async def steps(app: DttuiApp, pilot: Pilot[None]) -> None:
        await pilot.press("j")
        await settle(app, pilot)
        await pilot.press(*keys)

    return steps


async def show_links(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Go to what measures links."""
    await pilot.press("c")
    await until(pilot, lambda: isinstance(app.screen, ChecksScreen), "the board is on screen")
    await pilot.press("b")


def kept_links(inventory: Inventory) -> Steps:
    """Show what was measured between the chosen hosts."""

    async def steps(app: DttuiApp, pilot: Pilot[None]) -> None:
        kept_bench(inventory, CHOSEN)
        await show_links(app, pilot)
        await until(pilot, lambda: bool(app.screen.query("#bench-series")), "the links are on screen")
        await pilot.pause(1.0)

    return steps


async def ask_to_measure(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Be asked whether to measure."""
    await show_links(app, pilot)
    await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")


async def measure(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Measure, after the question."""
    await show_links(app, pilot)
    await until(pilot, lambda: isinstance(app.screen, ChoiceDialog | BenchScreen), "the links are on screen")
    if isinstance(app.screen, BenchScreen):  # Where another picture's are kept.
        await pilot.press("m")
    await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first")
    await pilot.press("right", "enter")
    await until(pilot, lambda: bool(app.screen.query("#bench-series")), "the links are on screen")
    await pilot.pause(1.5)


async def offer_gpus(app: DttuiApp, pilot: Pilot[None]) -> None:
    """Offer the GPUs of a host of which somebody has some."""
    known = app.fleet.statuses[CHOSEN[2]].environment
    hold = GpuHold("li", "bert-large-7", [0, 1, 5], since=time.time() - 3 * 3600)
    app.fleet.statuses[CHOSEN[2]] = status(known, EnvironmentState.BUSY, 38, holds=[hold])
    await follow(app, pilot)
    await press("home", "down", "down", "G", "a", "down", "down", "space")(app, pilot)


def naming_gpus() -> Job:
    """A job that names GPUs of two of its nodes."""
    ids = {CHOSEN[1]: (1, 3), CHOSEN[2]: (0, 1, 2, 3, 6)}
    nodes = tuple(
        Node(id=key, resources=NodeResources(gpu=GpuRequest(ids=ids[key])) if key in ids else None) for key in CHOSEN
    )
    return job(cluster=Cluster(nodes=nodes))


def scenes(inventory: Inventory) -> dict[str, tuple[dict[str, object], Steps]]:
    """Every picture by name: options of the app, and what to do before the picture is taken."""
    draft = job(*CHOSEN)
    one_zone = job("a100-17", "a100-18", model=Model(parameters=7e9, precision="bf16"))
    told = {"gradient_accumulation_steps": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.003}}}
    deepspeed = job(*CHOSEN, framework="deepspeed", framework_options=told)
    costed = job(*CHOSEN, model=Model(parameters=7e9, precision="bf16"))
    said = costed.model_copy(
        update={
            "strategy": Strategy(tensor_parallel_size=2, zero_stage=1, data_parallel=DataParallel(batch_size=448)),
            "recovery": Recovery(max_restarts=5, checkpoint=Checkpoint(dir="/ckpt", shared=True, interval="30m")),
            "monitoring": Monitoring(alerts=(Alert(metric="gpu.temperature > 85"), Alert(log="NaN", action="restart"))),
        }
    )
    launcher = Run(command=("bash", "run.sh"), workdir=".", per="node")
    once_a_node = job(*CHOSEN, framework="command", run=launcher)
    live = [job_files.running(draft, inventory, took_s=20.0), job_files.silent(draft, inventory)]
    run, silent = (writer.directory for writer in live)
    live.append(job_files.checked(draft, inventory))
    checking = live[-1].directory
    live.append(bench_under_way(draft, inventory))
    measuring = live[-1].directory
    demo = inventory.model_copy(
        update={
            "environments": tuple(
                item.model_copy(
                    update={
                        "resources": item.resources.model_copy(
                            update={"gpu": item.resources.gpu.model_copy(update={"simulated": True})}
                        )
                    }
                )
                if item.resources.gpu
                else item
                for item in inventory.environments
            )
        }
    )
    live.append(job_files.running(draft, demo))
    simulated = live[-1].directory
    live.append(job_files.waiting(draft, inventory))
    waiting = live[-1].directory
    live += [job_files.agent_gone(draft, inventory), job_files.without_one(draft, inventory)]
    agent_gone, elastic = (writer.directory for writer in live[-2:])
    for writer in live:
        writer.watch()
    hostile = job_files.hostile(draft, inventory).directory
    good = job_files.succeeded(draft, inventory).directory
    bad = job_files.failed(draft, inventory).directory
    faster = Run(script="/opt/train.py", args=("--steps", "400", "--lr", "0.003"))
    for name, script, pace in (
        ("gpt-base", draft.run, 1.0),
        ("gpt-lr-3e-3", faster, 1.6),
        ("gpt-two-hosts", faster, 0.7),
    ):
        nodes = CHOSEN if pace > 0.9 else CHOSEN[:2]
        job_files.trained(job(*nodes, name=name, run=script), inventory, pace)
    return {
        "compose": ({"draft": draft}, nothing),
        "compose-form": ({"draft": draft}, press("v")),
        "compose-model": ({"draft": costed}, nothing),
        "compose-model-form": ({"draft": costed}, press("v")),
        "compose-fits": ({"draft": one_zone}, press("v")),
        "compose-sections": ({"draft": said}, press("a")),
        "compose-findings": ({"draft": costed}, press("n", "down")),
        "compose-guide": ({"draft": draft}, press("u")),
        "gpus": ({"draft": draft}, offer_gpus),
        "compose-gpus": ({"draft": naming_gpus()}, press("home", "down", "down")),
        "section-strategy": ({"draft": said}, press("D")),
        "section-model": ({"draft": costed}, section("model")),
        "section-recovery": ({"draft": said}, section("recovery")),
        "section-alerts": ({"draft": said}, section("monitoring", "alerts")),
        "model": ({"draft": draft}, press("w")),
        "model-wrong": ({"draft": draft}, press("w", *"7x", "enter")),
        "options": ({"draft": deepspeed}, press("t")),
        "options-wrong": ({"draft": deepspeed}, press("t", "tab", *"x", "enter")),
        "container": ({"draft": draft}, press("i")),
        "recommend": ({"draft": one_zone}, press("d")),
        "recommend-zones": ({"draft": costed}, press("d")),
        "estimate": ({"draft": one_zone}, press("e")),
        "estimate-end": ({"draft": costed}, press("e", "end")),
        "preview-model": ({"draft": costed}, press("p")),
        "compose-blank": ({}, nothing),
        "compose-refused": ({}, press("space", "ctrl+l")),
        "compose-filter": ({"draft": draft}, press("slash", *"a100", "enter")),
        "framework": ({"draft": draft}, choose_framework),
        "host-key": ({"draft": draft}, ask(HOST_KEY, PASSWORD)),
        "password": ({"draft": draft}, ask(PASSWORD)),
        "hosts": ({"inventory": Inventory()}, import_hosts),
        "empty": ({"inventory": Inventory()}, nothing),
        "once-a-node": ({"draft": once_a_node}, press("v", "tab", "tab", "tab")),
        "preview": ({"draft": draft}, press("p")),
        "preview-file": ({"draft": deepspeed}, show_file),
        "preview-changes": ({"draft": costed}, press("p", "c")),
        "open": ({"draft": draft}, press("o")),
        "templates": ({"draft": draft}, press("N")),
        "job-text": ({"draft": costed}, press("y")),
        "job-text-wrong": ({"draft": costed}, mistype),
        "preview-first": ({"draft": draft.model_copy(update={"name": "new"})}, press("p", "c")),
        "checks": ({"draft": draft, "check": trouble}, press("c")),
        "bench-question": ({"draft": draft, "check": trouble}, ask_to_measure),
        "bench-under-way": (
            {"draft": draft, "check": trouble, "launch": lambda _submission, _plan: measuring},
            measure,
        ),
        "bench": ({"draft": draft, "check": trouble}, kept_links(inventory)),
        "help": ({"draft": draft}, press("question_mark")),
        "run-help": ({"attach": run}, press("2", "question_mark")),
        "palette": ({"draft": draft}, press("ctrl+p")),
        "palette-word": ({"draft": draft}, press("ctrl+p", *"node")),
        "settings": ({"draft": draft}, press("comma")),
        "jump": ({"draft": draft}, press("ctrl+o")),
        "plain": ({"draft": costed, "plain": True}, nothing),
        "run-plain": ({"attach": run, "plain": True}, nothing),
        "keymap": ({"draft": draft}, press("comma", "shift+tab", "enter")),
        "jobs": ({}, press("j")),
        "agents": ({}, press("h")),
        "agents-away": ({}, press("h", "down", "down", "down", "down", "down")),
        "agents-busy": ({}, press("h", "down", "down", "down")),
        "agents-done": ({}, show_outcomes),
        "agents-remove": ({}, press("h", "space", "space", "space", "space", "x")),
        "jobs-filter": ({}, on_jobs("slash", *"state:succeeded loss<3", "enter", "space", "space")),
        "jobs-remove": ({}, on_jobs("A", "x")),
        "jobs-restart": ({}, on_jobs("slash", *"step:400", "enter", "r")),
        "compare": ({}, on_jobs("slash", *"step:400", "enter", "space", "space", "space", "c")),
        "run": ({"attach": run}, nothing),
        "run-simulated": ({"attach": simulated}, nothing),
        "run-logs": ({"attach": run}, tab("logs")),
        "run-events": ({"attach": run}, tab("events")),
        "run-checking": ({"attach": checking}, nothing),
        "run-waiting": ({"attach": waiting}, nothing),
        "run-silent": ({"attach": silent}, nothing),
        "run-cancelled": ({"attach": job_files.cancelled(draft, inventory).directory}, nothing),
        "run-succeeded": ({"attach": good}, nothing),
        "run-failed": ({"attach": bad}, nothing),
        "run-failed-logs": ({"attach": bad}, tab("logs")),
        "run-agent-gone": ({"attach": agent_gone}, nothing),
        "run-agent-gone-why": ({"attach": agent_gone}, tab("why")),
        "run-elastic": ({"attach": elastic}, nothing),
        "run-elastic-events": ({"attach": elastic}, tab("events")),
        "run-hostile": ({"attach": hostile}, nothing),
        "run-hostile-events": ({"attach": hostile}, tab("events")),
        "run-hostile-logs": ({"attach": hostile}, tab("logs")),
        "jobs-hostile": ({}, press("j")),
        "prompt-hostile": ({"draft": draft}, ask(PHISHING)),
        "run-missed": ({"attach": job_files.missed(draft, inventory).directory}, nothing),
        "run-stop": ({"attach": run}, press("x")),
    }


async def draw(options: dict[str, object], steps: Steps, size: tuple[int, int], theme: str) -> str:
    """Return a picture as SVG."""
    app = make_app(**{"inventory": make_inventory(), **options, "theme": theme})  # type: ignore[arg-type]  # named fields
    async with app.run_test(size=size, notifications=True) as pilot:
        set_states(app)
        await settle(app, pilot)
        if app.screen.query(EnvironmentPane):
            await follow(app, pilot)
        await steps(app, pilot)
        await settle(app, pilot)
        return app.export_screenshot(title="dttui")


async def draw_reviews(target: Path, options: argparse.Namespace) -> None:
    """Draw all pictures, or those wanted, for a person to look through."""
    inventory = make_inventory(chinese=options.lang == "zh")
    for name, (given, steps) in scenes(inventory).items():
        if options.scene and name not in options.scene:
            continue
        for size in options.size or ["120x40"]:
            for theme in options.theme or ["dusk"]:
                svg = await draw({"inventory": inventory, **given}, steps, SIZES[size], theme)
                (target / f"{name}-{size}-{theme}-{options.lang}.svg").write_text(svg, encoding="utf-8")


async def draw_readme(target: Path) -> None:
    """Draw the pictures that the READMEs show."""
    for language, ending in (("en", ".svg"), ("zh", ".zh.svg")):
        set_language(language)
        inventory = make_inventory(chinese=language == "zh")
        with tempfile.TemporaryDirectory() as state:
            os.environ["XDG_STATE_HOME"] = state
            draft = job(*CHOSEN, model=Model(parameters=1.3e9, precision="bf16"))
            job_files.running(job("a100-17", "a100-18", name="vision"), make_inventory(), took_s=20.0).watch()
            pictures: dict[str, tuple[dict[str, object], Steps]] = {
                "compose": ({"draft": draft}, nothing),
                "preview": ({"draft": draft}, press("p")),
                "hosts": ({}, press("h")),
            }
            await draw_pictures(pictures, inventory, target, ending)
            job_files.succeeded(job(*CHOSEN), inventory)
            job_files.failed(job(*CHOSEN), inventory)
            run = job_files.running(job(*CHOSEN), inventory, took_s=20.0)
            run.watch()
            pictures = {"run": ({"attach": run.directory}, nothing), "jobs": ({}, press("j"))}
            await draw_pictures(pictures, inventory, target, ending)


async def draw_pictures(
    pictures: Mapping[str, tuple[dict[str, object], Steps]], inventory: Inventory, target: Path, ending: str
) -> None:
    """Draw pictures by their names, each with options of the app and what is done there first."""
    for name, (options, steps) in pictures.items():
        svg = await draw({"inventory": inventory, **options}, steps, README_SIZE, "dusk")
        (target / f"{name}{ending}").write_text(svg, encoding="utf-8")


def main() -> int:
    """Draw the READMEs' pictures into a directory, or those asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, metavar="DIRECTORY")
    parser.add_argument("--all", action="store_true", help="every screen, to look through")
    parser.add_argument("--scene", action="append", default=[], help="only this screen, to look at")
    parser.add_argument("--size", action="append", default=[], choices=sorted(SIZES))
    parser.add_argument("--theme", action="append", default=[])
    parser.add_argument("--lang", default="en", choices=("en", "zh"))
    options = parser.parse_args()
    compile_catalogues()
    set_language(options.lang)
    options.target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        Path(home, ".ssh").mkdir()
        Path(home, ".ssh", "config").write_text("Host gpu1 gpu2 a100-17 a100-18\n", encoding="utf-8")
        os.environ.update(HOME=home, XDG_STATE_HOME=home, XDG_CONFIG_HOME=home)
        drawing = draw_reviews(options.target, options) if options.all or options.scene else draw_readme(options.target)
        asyncio.run(drawing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
