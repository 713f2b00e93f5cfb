"""Every field of a job can be set on the compose screen: by a widget of its own, or by the form of its section."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pydantic import BaseModel

from dttui.compose.changes import form_of, is_elsewhere, said_of, section_of, sections, with_section
from dttui.inventory.models import Inventory
from dttui.planning.compose_state import ComposeState
from dttui.planning.section_form import section_form
from dttui.spec.findings import Finding, warning
from dttui.spec.models import Cluster, Job, Node, Run
from dttui.spec.schema_walk import annotations_at, models_at
from dttui.tui.finding_places import place_of
from dttui.tui.section_titles import section_rows, section_title

OF_GPUS = {"cluster.nodes.resources.gpu.count", "cluster.nodes.resources.gpu.ids"}
ON_THE_LIST = {"cluster.nodes.id", "cluster.nodes.role", *OF_GPUS}
"""Ticks, the master's key, the keys for more and fewer GPUs, and the one for GPUs singly."""
IN_FILES_ALONE = {
    "cluster.nodes.resources.gpu.memory": "resources asks it of every node",
    "cluster.nodes.resources.gpu.type": "resources asks it of every node",
    "cluster.nodes.resources.cpu.cores": "resources asks it of every node",
    "cluster.nodes.resources.cpu.memory": "resources asks it of every node",
    "cluster.nodes.network.bandwidth": "resources says it of every node",
    "cluster.nodes.network.latency": "resources says it of every node",
    "cluster.nodes.network.interface": "resources says it of every node",
}
"""What is kept of an opened job and cannot be set on the screen, and why that is borne."""


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of a model below which nothing is a section, items of lists with it."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        items = annotations_at(model, (key, 0))
        is_list = len(items) == 1 and isinstance(items[0], type) and issubclass(items[0], BaseModel)
        inner = items if is_list else models_at(model, (key,))
        if len(inner) == 1 and len(annotations_at(model, (key,))) == 1:
            yield from leaves(inner[0], (*path, key))
        else:
            yield (*path, key)


def asked() -> set[str]:
    """Every key that the form of a section asks for."""
    found: set[str] = set()
    for section in sections():
        prefix = "" if section == "job" else f"{section}."
        for field in form_of(ComposeState(), section).fields:
            found.add(prefix + field.name)
            inner = section_form(field.item, None).fields if field.item is not None else ()
            found |= {f"{prefix}{field.name}.{item.name}" for item in inner}
    return found


def test_every_field_of_a_job_can_be_set_on_the_screen_but_for_a_few_that_are_named() -> None:
    known = asked()
    lacking = set()
    for path in leaves(Job):
        name = ".".join(path)
        at = place_of(warning("made-up", name, "wrong"), ComposeState())
        has_widget = is_elsewhere(path) and at is not None and at.selector != "#environments"
        if name not in known and not has_widget and name not in ON_THE_LIST:
            lacking.add(name)
    assert lacking == set(IN_FILES_ALONE)


def test_each_section_has_a_line_and_a_title() -> None:
    assert {key for key, _title in section_rows()} == set(sections())
    assert all(section_title(key) for key in sections())


@pytest.mark.parametrize(
    ("section", "texts", "said"),
    [
        (
            "strategy",
            {"tensor_parallel_size": "2", "data_parallel.batch_size": "64"},
            {"tensor_parallel_size": 2, "data_parallel": {"batch_size": 64}},
        ),
        (
            "recovery",
            {"max_restarts": "5", "checkpoint.dir": "/ckpt"},
            {"max_restarts": 5, "checkpoint": {"dir": "/ckpt"}},
        ),
        ("monitoring", {"alerts": "[{metric: loss > 10}]"}, {"alerts": [{"metric": "loss > 10"}]}),
        ("run", {"env": "OMP_NUM_THREADS: 8", "secrets": "HF_TOKEN"}, None),
        ("job", {"settings": "lr: 0.1"}, None),
    ],
)
def test_what_a_form_reads_is_in_the_job(section: str, texts: dict[str, str], said: object) -> None:
    state = ComposeState(task_name="mini", program="train.py", dataset="none")
    form = form_of(state, section)
    values, faults = form.read({**form.texts, **texts})
    assert faults == {}
    job = with_section(state, section, values).to_job().model_dump(mode="json", exclude_unset=True)
    if section == "run":
        assert job["run"] == {"script": "train.py", "env": {"OMP_NUM_THREADS": "8"}, "secrets": ["HF_TOKEN"]}
    elif section == "job":
        assert job["settings"] == {"lr": 0.1}
    else:
        assert job[section] == said


def test_an_emptied_section_is_gone_and_what_is_asked_for_elsewhere_stays() -> None:
    run = Run(script="train.py", args=("--fast",), env={"A": "1"})
    draft = Job(name="mini", run=run, cluster=Cluster(nodes=(Node(id="a"), Node(id="b")), candidates="any"))
    state = ComposeState.from_job(draft, Inventory())
    form = form_of(state, "run")
    assert form.texts == {"env": "A: '1'", "secrets": "", "warm_start": ""}
    state = with_section(state, "run", form.read({**form.texts, "env": ""})[0])
    state = with_section(state, "cluster", {})
    job = state.to_job()
    assert job.run == Run(script="train.py", args=("--fast",))
    assert job.cluster == Cluster(nodes=(Node(id="a"), Node(id="b")))
    assert said_of(state, "run") == ()


def test_a_group_of_nodes_is_checked_against_those_that_are_ticked() -> None:
    state = replace(ComposeState(), selected=("a", "b"))
    form = form_of(state, "cluster")
    assert "count" not in form.texts
    wrong = form.read({**form.texts, "topology.groups": "[{name: rack, nodes: [a, c]}]"})[1]
    assert '"c" is no node of the job' in wrong["topology.groups"]


@pytest.mark.parametrize(
    ("finding", "place"),
    [
        (warning("memory", "model", "does not fit"), ("", "", "strategy", "zero_stage")),
        (warning("degrees", "strategy", "6", path=("strategy", "zero_stage")), ("", "", "strategy", "zero_stage")),
        (warning("heartbeat-short", "recovery.heartbeat_s", "short"), ("", "", "recovery", "heartbeat_s")),
        (warning("x", "run.container.image", "missing"), ("#container", "", "", "image")),
        (warning("x", "cluster.nodes[1].id", "unknown"), ("", "b", "", "")),
        (warning("gpus-unknown", "a", "unknown"), ("", "a", "", "")),
        (warning("cross-zone", "cluster.nodes", "far"), ("#environments", "", "", "")),
        (warning("x", "framework_options.offload", "unknown"), ("#options", "", "", "offload")),
    ],
)
def test_a_finding_leads_to_what_mends_it(finding: Finding, place: tuple[str, str, str, str]) -> None:
    found = place_of(finding, ComposeState(selected=("a", "b")))
    assert found is not None
    assert (found.selector, found.environment, found.section, found.field) == place


def test_a_finding_about_nothing_of_the_job_leads_nowhere() -> None:
    assert place_of(warning("x", "somewhere", "else"), ComposeState()) is None


def test_a_key_is_told_by_its_section_and_its_name_there() -> None:
    assert section_of(("recovery", "checkpoint", "dir")) == ("recovery", "checkpoint.dir")
    assert section_of(("settings", "lr")) == ("job", "settings.lr")
