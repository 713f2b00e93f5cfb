"""What acts upon a key: marked in the models, told by the schema, and walked for the plan."""

from __future__ import annotations

from typing import get_args

import pytest

from dttui.spec import DocumentError, parse_job
from dttui.spec.effects import effect_of, keys_for_script, keys_without_effect
from dttui.spec.models import (
    CollectiveOps,
    DataSharding,
    GroupLink,
    ModelSplitting,
    NetworkRequest,
    NodeGroup,
    Section,
    Storage,
    Topology,
    Visualization,
)
from dttui.spec.problems import format_path

UNDEFINED_BY_THE_SEED = (
    Topology,
    NodeGroup,
    GroupLink,
    Storage,
    NetworkRequest,
    Visualization,
    CollectiveOps,
    DataSharding,
    ModelSplitting,
)


def effects_of(model: type[Section], name: str) -> list[str | None]:
    """Return what acts upon a field, or upon those of the section that it is."""
    kinds = [kind for kind in get_args(model.model_fields[name].annotation) if kind is not type(None)]
    sections = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]
    below = [effect_of(section, field) for section in sections for field in section.model_fields]
    return below or [effect_of(model, name)]


@pytest.mark.parametrize("model", UNDEFINED_BY_THE_SEED)
def test_each_field_of_a_type_that_the_seed_only_names_says_what_acts_upon_it(model: type[Section]) -> None:
    effects = {effect for name in model.model_fields for effect in effects_of(model, name)}
    assert effects <= {"launch", "preflight", "estimate", "script"}
    assert model.__doc__


def test_keys_that_the_script_alone_acts_upon_are_found_wherever_they_are() -> None:
    job = parse_job(
        """\
distributed_training:
  name: a
  cluster:
    topology: {type: ring, groups: [{name: rack, nodes: [a, b]}], between_groups: {latency: 5us}}
    nodes: [{id: a, network: {bandwidth: 1Gbps}}, {id: b}]
  resources:
    storage: {local: {path: /data, size: 1TB}, shared: {type: nfs}}
    network: {latency: 5ms, interface: eth0}
  version: 2.0.0
  monitoring: {metrics: [loss], logging: {level: DEBUG}}
  communication:
    collective_ops: {allreduce: {algorithm: ring, buffer_size: 1048576, op: mean}, allgather: {algorithm: ring}}
  recovery: {max_restarts: 2, heartbeat_s: 30, checkpoint: {dir: /c, copies: 1, keep: 2, interval: 5m}}
""",
        "job.yaml",
    )
    assert list(keys_without_effect(job)) == []
    assert [format_path(path) for path in keys_for_script(job)] == [
        "version",
        "cluster.topology.type",
        "communication.collective_ops.allreduce.op",
        "resources.storage.shared.type",
        "monitoring.metrics",
        "monitoring.logging.level",
    ]


def test_metrics_that_are_read_by_an_expression_are_not_the_scripts_alone() -> None:
    metrics = "[{name: loss, pattern: 'loss (.)'}]"
    for said, expected in ((metrics, []), (metrics.replace("[", "[acc, "), [("monitoring", "metrics")])):
        job = parse_job(f"distributed_training:\n  name: a\n  monitoring: {{metrics: {said}}}\n", "job.yaml")
        assert list(keys_for_script(job)) == expected


def test_the_scripts_own_settings_are_not_told_to_be_the_scripts() -> None:
    job = parse_job("distributed_training:\n  name: a\n  settings: {epochs: 3}\n", "job.yaml")
    assert list(keys_for_script(job)) == []


def test_room_is_asked_for_at_a_path_that_hosts_have() -> None:
    for storage in ("{size: 1TB}", "{path: data, size: 1TB}"):
        text = f"distributed_training:\n  name: a\n  resources: {{storage: {{local: {storage}}}}}\n"
        with pytest.raises(DocumentError, match="room is looked for at an absolute path; write path: beside it"):
            parse_job(text, "job.yaml")


def test_what_only_elastic_jobs_read_has_an_effect_on_those_alone() -> None:
    recovery, elastic = (
        "recovery: {checkpoint: {dir: /c, copies: 1}}",
        "framework_options: {elastic: {min_nodes: 1}}",
    )
    texts = [f"distributed_training:\n  name: a\n  {recovery}\n  {more}\n" for more in ("", elastic)]
    found = [list(keys_without_effect(parse_job(text, "job.yaml"))) for text in texts]
    assert found == [[("recovery", "checkpoint", "copies")], []]


def test_which_events_are_told_has_an_effect_where_something_is_run_on_them() -> None:
    kinds = "on_event_kinds: [outcome]"
    texts = [f"distributed_training:\n  name: a\n  monitoring: {{{kinds}{more}}}\n" for more in ("", ", on_event: [x]")]
    found = [list(keys_without_effect(parse_job(text, "job.yaml"))) for text in texts]
    assert found == [[("monitoring", "on_event_kinds")], []]
