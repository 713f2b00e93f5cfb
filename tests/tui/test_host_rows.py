"""The list of hosts: what a row and the details say, what is asked before a change, and how far work on hosts is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import dtagent
import pytest
from dtagent.protocol.telemetry import GpuHold, RankSample
from rich.cells import cell_len

from dttui.app import App, Checkup, Site, Trouble
from dttui.doctor.models import Remedy
from dttui.errors import AgentError, HostError, RefusedError, UsageError
from dttui.fleet.deployment.outcomes import AgentRemoval, Deployment
from dttui.fleet.states import EnvironmentState
from dttui.i18n import _, set_language
from dttui.inventory.models import Environment
from dttui.rpc.sample_rows import WholeSample
from dttui.spec.findings import warning
from dttui.transport.base import Nobody
from dttui.tui.environment_filter import parse_filter
from dttui.tui.host_rows import HOST_SORTS, host_details, host_order, host_row
from dttui.tui.host_work import HostAction, HostTask, HostWork, TaskStage
from dttui.tui.remedy_keys import with_keys
from dttui.tui.rows import environment_detail
from dttui.tui.screens.host_questions import question_of
from dttui.tui.widgets.host_row import COLUMNS, HostColumns, column_at, header_pieces, host_pieces
from dttui.words import agent_outcome_name
from tests.tui.catalogue import compile_catalogues
from tests.tui.fake_fleet import environment, sample, status

IDLE, BUSY = EnvironmentState.IDLE, EnvironmentState.BUSY
OURS = dtagent.__version__


@pytest.mark.parametrize(
    ("state", "more", "words"),
    [
        (IDLE, {}, OURS),
        (IDLE, {"agent_version": "0.0.9"}, "0.0.9 older"),
        (IDLE, {"agent_version": "99.0"}, "99.0 newer"),
        (EnvironmentState.NO_AGENT, {}, "none"),
        (EnvironmentState.NO_AGENT, {"is_foreign": True}, "other protocol"),
        (EnvironmentState.UNREACHABLE, {}, "–"),
    ],
)
def test_the_agent_of_a_host_is_told_beside_that_of_this_dttui(
    state: EnvironmentState, more: dict[str, Any], words: str
) -> None:
    row = host_row(status(environment("gpu1", 2), state, **more), None, time.time())
    assert row.agent == words
    assert parse_filter(words.split()[-1].casefold()).takes(row)


def test_the_details_tell_how_it_is_reached_what_it_is_and_who_uses_it_since_when() -> None:
    now = time.time()
    hold = GpuHold("li", "bert-7", [0, 1], since=now - 3600, until=now + 3600)
    host = environment("gpu1", 2, "beijing-a").model_copy(update={"user": "me", "proxy_jump": "gate"})
    text = host_details(status(host, BUSY, 90, holds=[hold]), None, None).plain
    for words in (
        "by SSH: gpu1.example.org · as me · through gate",
        f"{OURS}, that of this dttui · protocol 1 · heard now",
        "2×A100-80GB · driver 550.54.15 · CUDA up to 12.4",
        "Python 3.11.2 · torch 2.13.0",
        "beijing-a · Jupyter · pytorch",
        "GPU 0, 1: job bert-7 of li since",
        "✓ no GPU reports an error",
    ):
        assert words in text
    away = status(host, EnvironmentState.UNREACHABLE, reason="gpu1: no answer", hint="Look.", heard_at=now - 300)
    assert "heard 5m ago" in host_details(away, None, None).plain
    assert "no answer → Look." in host_details(away, None, None).plain
    bare = status(host, EnvironmentState.NO_AGENT, reason="gpu1: no agent", hint="dttui agents deploy gpu1")
    text = host_details(bare, None, None).plain
    assert f"none; d deploys {OURS}" in text
    assert "dttui agents deploy" not in text


def test_a_check_up_stands_in_the_details_with_its_commands() -> None:
    message = _("{host}: there is no agent on this host").format(host="gpu1")
    trouble = Trouble(Site.HOST, warning("no-agent", "gpu1", message), (Remedy("ulimit -n 9", "gpu1"),))
    between = Trouble(Site.BETWEEN, warning("drift", "gpu1", "torch differs"))
    found = Checkup(("gpu1", "gpu2"), (trouble, between))
    text = host_details(status(environment("gpu1", 2), IDLE), None, found).plain
    assert "warning: there is no agent on this host" in text
    assert "gpu1$ ulimit -n 9" in text
    assert "torch differs" in text
    other = host_details(status(environment("gpu2", 2), IDLE), None, found).plain
    assert "nothing is wrong on this host" in other


def test_remedies_name_the_keys_of_the_screen_where_it_has_any() -> None:
    host, name = environment("gpu1", 2), "gpu1"
    hint = _("Install it: dttui agents deploy {host}").format(host=name)
    failed = HostTask(HostAction.UPGRADE, TaskStage.FAILED, "gpu1: there is no agent", hint=hint, at=1000.0)
    old = HostTask(HostAction.LOOK, TaskStage.DONE, _("this dttui brings {version}: dttui agents upgrade"), at=1000.0)
    finding = warning("no-agent", name, "gpu1: there is no agent", hint)
    commands = (Remedy("dttui agents deploy gpu1 --inventory /tmp/hosts.yaml"), Remedy("ls -1", name))
    found = Checkup((name,), (Trouble(Site.HOST, finding, commands),))
    text = host_details(status(host, IDLE), failed, found).plain
    assert "Install it: d (deploy)" in text
    assert "→ d (deploy)" in text
    assert "gpu1$ ls -1" in text
    assert "dttui " not in text.replace("this dttui ", "")
    assert "brings {version}: u (upgrade)" in host_details(status(host, IDLE), old, None).plain
    away = status(host, EnvironmentState.UNREACHABLE, reason="gpu1: old", hint=hint)
    assert "Install it: h, then d (deploy)" in environment_detail(away)[-1][0], "the hosts are a key away"


def test_only_commands_that_a_key_does_whole_are_told_as_keys() -> None:
    assert with_keys("`dttui agents deploy gpu1` brings it back.", on_hosts=True) == "d (deploy) brings it back."
    told = "`dttui agents deploy gpu1` brings it back."
    assert with_keys(told) == "h, then d (deploy) on gpu1 brings it back.", "there the cursor is anywhere"
    assert with_keys("run dttui envs trust a b --fingerprint SHA256:x") == "run h, then t (trust) on a b"
    assert with_keys("Upgrade: dttui agents upgrade a.b.org c.", on_hosts=True) == "Upgrade: u (upgrade)."
    trust = "run `dttui envs trust gpu1 --fingerprint SHA256:abc`."
    assert with_keys(trust, on_hosts=True) == "run t (trust)."
    for text in ("py-spy is damaged: dttui agents deploy --with py-spy", "`dttui logs job -f` shows them"):
        assert with_keys(text) == with_keys(text, on_hosts=True) == text
    insist = _("Upgrade dttui on this login node, or insist with --yes.")
    assert with_keys(insist, on_hosts=True) == "Upgrade dttui on this login node."


def test_a_row_tells_what_is_done_and_after_a_while_only_the_details_do() -> None:
    known = status(environment("gpu1", 2), BUSY, reason="li")
    done = HostTask(HostAction.DEPLOY, TaskStage.DONE, "upgraded: 3.1 s", at=1000.0)
    assert host_row(known, done, 1010.0).said == ("✓ deploy: upgraded: 3.1 s", "state-succeeded")
    assert "upgraded" not in host_row(known, done, 2000.0).said[0]
    assert "upgraded: 3.1 s" in host_details(known, done, None).plain
    doing = HostTask(HostAction.REMOVE, TaskStage.UNDER_WAY, "connecting", at=1000.0)
    assert host_row(known, doing, 9999.0).said[0] == "◔ remove agent: connecting"
    set_language("zh")
    assert host_row(known, done, 1010.0).said[0] == "✓ 部署：upgraded: 3.1 s"
    assert "部署，" in host_details(known, done, None).plain
    message = _("{host}: there is no agent on this host").format(host="gpu1")
    failed = HostTask(HostAction.UPGRADE, TaskStage.FAILED, message, at=1000.0)
    assert host_row(known, failed, 1010.0).said[0] == "✗ 升级：" + message.removeprefix("gpu1："), (
        "its name stands beside"
    )


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ("✓ installed", "✗ failed: remove ", "✗ doctor: 2 errors", "◔ deploy: waiting")),
        ("zh", ("✓ 已安装", "✗ 失败：移除 agent", "✗ 体检：2 errors", "◔ 部署：")),
    ],
)
def test_what_came_of_something_can_be_read_on_a_narrow_screen(language: str, words: tuple[str, ...]) -> None:
    compile_catalogues()
    set_language(language)
    outcome = agent_outcome_name("installed")
    tasks = (
        HostTask(HostAction.DEPLOY, TaskStage.DONE, f"{outcome}: 21.4 s, 3.1 MB sent", outcome, at=1000.0),
        HostTask(HostAction.REMOVE, TaskStage.FAILED, "gpu1: jobs run there: bert-large-7", at=1000.0),
        HostTask(HostAction.DOCTOR, TaskStage.FAILED, "2 errors", "2 errors", at=1000.0),
        HostTask(HostAction.DEPLOY, TaskStage.UNDER_WAY, _("waiting for its turn"), at=1000.0),
    )
    rows = [
        host_row(status(environment("a-host-of-many-words", 8, simulated=True), IDLE), task, 1010.0) for task in tasks
    ]
    columns = HostColumns.of(rows).fitting(80)
    said = [host_pieces(row, columns, 80, is_marked=False)[-1][0] for row in rows]
    assert all(text.startswith(word) for text, word in zip(said, words, strict=True)), said
    columns = HostColumns.of(rows).fitting(200)
    assert "21.4 s, 3.1 MB sent" in host_pieces(rows[0], columns, 200, is_marked=False)[-1][0]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_columns_fit_in_any_width_and_those_that_are_needed_are_always_there(width: int) -> None:
    names = ("a-host-with-a-name-of-many-words", "视觉实验室")
    rows = [host_row(status(environment(name, 8, simulated=True), BUSY), None, 0.0) for name in names]
    columns = HostColumns.of(rows).fitting(width)
    shown = [column.name for column, _width in columns]
    assert {column.name for column in COLUMNS if column.is_needed} <= set(shown)
    assert ("way" in shown) == (width == 200)
    for row in rows:
        line = "".join(text for text, _part in host_pieces(row, columns, width, is_marked=True))
        assert line.startswith(" ☑ ")
        assert " sim" in line
        assert cell_len(line) == width or width == 40
    head = "".join(text for text, _part in header_pieces(columns, width, "state", is_reversed=True))
    assert column_at(columns, cell_len(head[: head.index("state")])) == "state"
    assert "state ▾" in head


def test_hosts_are_sorted_by_each_column_both_ways() -> None:
    now = time.time()
    known = [
        status(environment("b", 2, "z1"), IDLE),
        status(environment("a", 8, "z2"), EnvironmentState.NO_AGENT),
        status(environment("c", 4, "z0"), BUSY, agent_version="0.0.9"),
    ]
    rows = {item.environment.name: host_row(item, None, now) for item in known}
    orders = {name: host_order(rows, parse_filter(""), name, is_reversed=False) for name in HOST_SORTS}
    assert orders[""] == ["b", "a", "c"]
    assert orders["name"] == ["a", "b", "c"]
    assert orders["gpus"] == ["a", "c", "b"]
    assert orders["state"][0] == orders["agent"][1] == "a"
    assert orders["zone"] == ["c", "b", "a"]
    assert host_order(rows, parse_filter("gpus>2"), "name", is_reversed=True) == ["c", "a"]


def test_before_a_change_is_said_what_it_does_to_which_host() -> None:
    ranks = {"gpt-1": [RankSample(0, 10)]}
    reading = WholeSample(replace(sample(environment("gpu1", 2), 9), ranks=ranks))
    busy = status(environment("gpu1", 2), BUSY, reading=reading)
    old = status(environment("gpu2", 2), IDLE, agent_version="0.0.9")
    newer = status(environment("gpu3", 2), IDLE, agent_version="99.0")
    removal = question_of(HostAction.REMOVE, [busy, old])
    assert removal is not None
    assert removal.title == "Remove the agent from 2 hosts?"
    assert "Jobs run on gpu1: nothing is removed there." in removal.text
    assert removal.choices[0][0] == "keep"
    upgrade = question_of(HostAction.UPGRADE, [busy, old, newer])
    assert upgrade is not None
    assert "gpu1: jobs run there, and go on" in upgrade.text
    assert upgrade.choices[0][0] == "upgrade", "what takes nothing away needs no second key"
    assert "gpu3: the newer agent there stays" in upgrade.text
    assert question_of(HostAction.DOCTOR, [busy]) is None
    assert question_of(HostAction.TRUST, [busy]) is None


class FakeAgents:
    """Does nothing on hosts, and says what a test has it say."""

    def __init__(self, results: dict[str, object]) -> None:
        self.results = results
        self.gate = asyncio.Event()
        self.has_told = asyncio.Event()
        self.asked: dict[str, object] = {}

    async def deploy(
        self, environments: Sequence[Environment], _prompter: object, *, on_progress: Callable[[str, str], None],
        on_done: Callable[[str, object], None], **asked: object,
    ) -> None:  # fmt: skip
        self.asked = asked
        for item in environments:
            on_progress(item.name, "sending wheels")
            if item.name in self.results:
                on_done(item.name, self.results[item.name])
        self.has_told.set()
        await self.gate.wait()

    async def remove(self, *_given: object, **_asked: object) -> None:
        raise UsageError("no wheels", "fetch them")


def work_on(results: dict[str, object]) -> tuple[HostWork, FakeAgents, list[asyncio.Task[None]], list[str]]:
    agents, tasks, reached = FakeAgents(results), cast("list[asyncio.Task[None]]", []), cast("list[str]", [])

    def start(act: Coroutine[Any, Any, None]) -> None:
        tasks.append(asyncio.create_task(act))

    face = cast("App", SimpleNamespace(agents=agents))
    return HostWork(face, Nobody(), start, reached.append), agents, tasks, reached


async def test_a_host_that_fails_ends_no_other_and_each_tells_how_far_it_is() -> None:
    refusal: HostError = RefusedError("b", "b: has dtagent 99", "insist")
    done = Deployment("a", True, OURS, "d", "3.11", "/x", 3.14, 9, replaced="e", version_before="0.0.9")
    work, agents, tasks, reached = work_on({"a": done, "b": refusal})
    hosts = [environment(name, 2) for name in "abc"]
    assert work.begin(HostAction.UPGRADE, hosts) == hosts
    assert work.tasks["c"].text == "waiting for its turn"
    await agents.has_told.wait()
    assert work.tasks["a"].text == "upgraded: 3.1 s, before: 0.0.9"
    assert (work.tasks["b"].stage, work.tasks["b"].text) == (TaskStage.FAILED, "has dtagent 99")
    assert work.tasks["b"].hint == "insist"
    assert work.tasks["c"].text == "sending wheels"
    assert reached == ["a"]
    assert agents.asked == {"wheelhouse": None, "only_upgrade": True, "allow_downgrade": False}
    assert work.begin(HostAction.DOCTOR, [hosts[2]]) == []
    assert work.under_way == 1
    agents.gate.set()
    await tasks[0]
    assert (work.tasks["c"].stage, work.tasks["c"].text) == (TaskStage.FAILED, "not finished")


async def test_what_keeps_all_from_being_done_is_told_of_each() -> None:
    work, _agents, tasks, _reached = work_on({})
    work.begin(HostAction.REMOVE, [environment("a", 2), environment("b", 2)])
    await tasks[0]
    assert [(task.text, task.hint) for task in work.tasks.values()] == [("no wheels", "fetch them")] * 2


async def test_a_key_that_is_not_trusted_leaves_the_others() -> None:
    async def trust(item: Environment, _prompter: object, _fingerprint: object) -> str:
        if item.name == "a":
            raise AgentError("a", "a: not confirmed")
        return "SHA256:x"

    work, _agents, tasks, reached = work_on({})
    cast("Any", work)._face.trust = trust  # noqa: SLF001 - the fake that this test made
    work.begin(HostAction.TRUST, [environment("a", 2), environment("b", 2)])
    await tasks[0]
    assert work.tasks["a"].text == "a: not confirmed"
    assert work.tasks["b"].text == "trusted: SHA256:x"
    assert reached == ["b"]


def test_removals_are_told_with_what_is_left() -> None:
    work, _agents, _tasks, _reached = work_on({})
    work._end("a", HostAction.REMOVE, AgentRemoval("a", True, (), 0, ("/var/tmp/x",)))  # noqa: SLF001
    assert work.tasks["a"].text == "removed: left there: /var/tmp/x"
