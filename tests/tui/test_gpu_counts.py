"""How many GPUs of each node a job uses: shown, added up, changed by keys, and saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dtagent.protocol.facts import GpuFacts
from textual.pilot import Pilot
from textual.widgets import Input

from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.planning.aggregate import Choice, gpu_text
from dttui.spec import load_job
from dttui.spec.models import Cluster, GpuRequest, Job, Node, NodeResources
from dttui.tui.app import DttuiApp
from dttui.tui.screens.compose import ComposeScreen
from tests.tui.composing import SIZE, FakeLauncher, lines_of, tick
from tests.tui.fake_fleet import GB, environment, job, make_app, make_inventory, set_states
from tests.tui.looking import follow, screen_text, settle, text_of, toasts, told
from tests.tui.screens import CHOSEN
from tests.unit.seed_cluster import host_facts


def few(*counts: int) -> Job:
    """A job on the seed's environments that uses some of their GPUs."""
    nodes = zip(CHOSEN, counts, strict=False)
    asked = (Node(id=key, resources=NodeResources(gpu=GpuRequest(count=count))) for key, count in nodes)
    return job(cluster=Cluster(nodes=tuple(asked)))


def counts_of(app: DttuiApp) -> dict[str, int]:
    assert isinstance(app.screen, ComposeScreen)
    return dict(app.screen.state.gpu_counts)


async def press(app: DttuiApp, pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settle(app, pilot)


async def test_a_job_that_uses_fewer_gpus_than_there_are_says_so_everywhere() -> None:
    inventory = make_inventory()
    app = make_app(inventory, draft=few(1, 1, 2), launch=FakeLauncher(inventory))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        set_states(app)
        await follow(app, pilot)
        for row in ("1 of 2×A100-80GB", "1 of 4×A100-80GB", "2 of 8×A100-80GB"):
            assert row in lines_of(app)
        summary = told(app, "#summary")
        assert "GPUs 4 of 14 (A100)" in summary
        assert "★ pytorch-dev-env 1 of 2×A100" in summary
        assert "3 of 8 ticked · 4 of 14 GPUs" in text_of(app, "#title-right")
        await press(app, pilot, "ctrl+l")
        assert "Training job created: distributed · 3 nodes · 4 of 14 GPUs" in toasts(app)


async def test_plus_and_minus_change_the_count_of_a_ticked_environment() -> None:
    app = make_app(draft=few(1, 1, 2))
    async with app.run_test(size=SIZE, notifications=True) as pilot:
        await settle(app, pilot)
        await press(app, pilot, "end", "home", "minus")
        assert counts_of(app)["pytorch-dev-env"] == 1
        await press(app, pilot, "equals_sign")
        assert "pytorch-dev-env" not in counts_of(app), "all of them needs no count"
        assert "GPUs 5 of 14 (A100)" in told(app, "#summary")
        await press(app, pilot, "plus")
        assert "pytorch-dev-env" not in counts_of(app)
        await press(app, pilot, "down", "plus", "plus")
        assert counts_of(app)["llm-training-env"] == 3
        assert "3 of 4×A100" in lines_of(app)
        await press(app, pilot, "end", "plus")
        assert "Tick the environment first" in toasts(app)[-1]


async def test_what_is_ticked_anew_is_used_with_as_many_gpus_as_before() -> None:
    app = make_app(draft=few(1, 1))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await tick(pilot, 0, 0)
        await settle(app, pilot)
        assert counts_of(app) == {"pytorch-dev-env": 1, "llm-training-env": 1}
        assert "1 of 2×A100" in screen_text(app)
        assert "2 of 6 GPUs" in text_of(app, "#title-right")


async def test_a_count_is_saved(tmp_path: Path) -> None:
    app = make_app(draft=job(*CHOSEN), base=tmp_path)
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await press(app, pilot, "home", "minus", "ctrl+s")
        app.screen.query_one("#path", Input).value = str(tmp_path / "few.yaml")
        await press(app, pilot, "enter")
        await app.workers.wait_for_complete()
    first, second, _third = load_job(tmp_path / "few.yaml").cluster.nodes
    assert first.resources == NodeResources(gpu=GpuRequest(count=1))
    assert second.resources is None


def test_gpus_in_words_whatever_is_known() -> None:
    unknown = environment("a", 0).model_copy(update={"resources": Resources()})
    bare = unknown.model_copy(update={"resources": Resources(gpu=GpuResources(count=4))})
    assert gpu_text(Choice(unknown)) == "GPUs ?"
    assert gpu_text(Choice(unknown, gpus_asked=2)) == "2 GPUs"
    assert gpu_text(Choice(bare, gpus_asked=2)) == "2 of 4 GPUs"
    assert gpu_text(Choice(environment("a", 0))) == "no GPU"
    assert gpu_text(Choice(environment("a", 2), gpus_asked=0)) == "0 of 2×A100-80GB"
    assert gpu_text(Choice(environment("a", 2), gpus_asked=2)) == "2×A100-80GB"


async def test_gpus_of_an_environment_that_has_none_cannot_be_stepped() -> None:
    app = make_app(Inventory(environments=(environment("ci-runner", 0),)), draft=job("ci-runner"))
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await press(app, pilot, "plus", "minus")
        assert counts_of(app) == {}


@pytest.mark.parametrize(
    ("declared", "size", "measured", "words"),
    [
        ("A100", 80 * GB, 81_920, "2×A100-80GB"),
        ("A100-40GB", 40 * GB, 40_960, "2×A100-40GB"),
        ("NVIDIA A100 80GB PCIe", 80 * GB, 81_920, "2×A100-PCIe-80GB"),
        ("H20", 96 * GB, 97_871, "2×H20-96GB"),
        ("A100", 20 * GB, 20_480, "2×A100 20 GB"),
        ("Voodoo2", 12 * GB, 11_444, "2×Voodoo2 12 GB"),
    ],
)
def test_a_gpu_is_called_alike_whether_its_memory_was_declared_or_measured(
    declared: str, size: int, measured: int, words: str
) -> None:
    resources = Resources(gpu=GpuResources(count=2, type=declared, memory=size))
    there = environment("a", 2).model_copy(update={"resources": resources})
    assert gpu_text(Choice(there)) == words
    gpus = [GpuFacts(index=index, name=declared, memory_total_mib=measured) for index in range(2)]
    facts = replace(host_facts(), gpus=gpus)
    # A part of a card has no name of its own: then it is the size that is told, as it is.
    assert gpu_text(Choice(there, facts)) == words.replace("20 GB", "21 GB")
