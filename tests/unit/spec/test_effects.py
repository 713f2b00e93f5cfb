"""What acts upon a key: marked in the models, told by the schema, and walked for the plan."""

from __future__ import annotations

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


@pytest.mark.parametrize("model", UNDEFINED_BY_THE_SEED)
def test_each_field_of_a_type_that_the_seed_only_names_says_what_acts_upon_it(model: type[Section]) -> None:
    effects = {effect_of(model, name) for name in model.model_fields}
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
  monitoring: {metrics: [loss], logging: {level: DEBUG}}
  recovery: {max_restarts: 2, heartbeat_s: 30, checkpoint: {dir: /c, copies: 1}}
""",
        "job.yaml",
    )
    assert list(keys_without_effect(job)) == []
    assert [format_path(path) for path in keys_for_script(job)] == [
        "cluster.topology.type",
        "resources.storage.shared.type",
        "monitoring.logging.level",
    ]


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
