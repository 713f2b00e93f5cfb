"""Jobs that go on without nodes that are lost, as they are planned: how it is asked for, and what torchrun is told."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.export.targets import TARGETS
from dttui.frameworks.bundle import fill
from dttui.frameworks.pytorch_ddp import CONFIG_FILE
from dttui.planning.models import Plan, PlannedNode
from dttui.planning.planner import plan
from dttui.preflight import hosts
from dttui.spec.findings import Severity
from dttui.spec.models import Checkpoint, Recovery, Run
from tests.unit.export.test_render_scripts import ejected
from tests.unit.seed_cluster import SEED, make_job

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"


def planned(elastic: dict[str, Any], framework: str = "pytorch-ddp", **fields: Any) -> Plan:
    options = {"elastic": elastic, **fields.pop("options", {})}
    return plan(make_job(A, B, C, framework=framework, framework_options=options, **fields), SEED)


@pytest.mark.parametrize("framework", ["pytorch-ddp", "pytorch-fsdp"])
def test_torchrun_meets_by_c10d_on_the_master_and_is_told_no_node_rank(framework: str) -> None:
    made = planned({"min_nodes": 2, "max_restarts": 5, "wait_s": 7}, framework)
    assert made.min_nodes == 2
    for node in made.nodes:
        (launcher,) = node.processes
        words = launcher.argv[launcher.argv.index("${PAYLOAD}/torchrun.py") + 1 : launcher.argv.index("--")]
        told = dict(word.split("=", 1) for word in words)
        assert told["--nnodes"] == "2:3"
        assert told["--rdzv-endpoint"] == made.master_address + ":${MASTER_PORT}"
        assert told["--rdzv-id"] == "${JOB_ID}-${ATTEMPT}"
        assert told["--local-addr"] == node.address
        assert told["--max-restarts"] == "5"
        assert f"is_host={int(node.node_rank == 0)}," in told["--rdzv-conf"]
        assert "last_call_timeout=7" in told["--rdzv-conf"]
        assert not {"--node-rank", "--master-addr", "--master-port"} & set(told)
        assert launcher.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]")
def test_torchs_own_parser_takes_what_torchrun_is_told() -> None:
    from torch.distributed.run import config_from_args, parse_args

    made = planned({"min_nodes": 2, "max_restarts": 5, "wait_s": 7})
    holes = {"MASTER_PORT": "29501", "JOB_ID": "gpt-1", "ATTEMPT": "0", "PAYLOAD": "/p", "PYTHON": "python"}
    argv = [fill(word, holes) for word in made.nodes[1].processes[0].argv[2:]]
    config, _command, _arguments = config_from_args(parse_args(argv))  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert (config.min_nodes, config.max_nodes, config.max_restarts) == (2, 3, 5)
    assert (config.rdzv_backend, config.run_id) == ("dttui", "gpt-1-0")
    assert config.rdzv_configs["is_host"] == "0"
    assert config.rdzv_configs["join_timeout"] == "600"


def test_without_being_asked_nothing_is_elastic() -> None:
    made = plan(make_job(A, B), SEED)
    assert made.min_nodes is None
    assert "--max-restarts=0" in made.nodes[0].processes[0].argv
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in made.nodes[0].processes[0].env
    assert not [finding for finding in made.findings if finding.code.startswith("elastic")]


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"elastic": {"min_nodes": 4}}, "framework_options.elastic.min_nodes", "min_nodes is 4, and the job has 3"),
        ({"elastic": {}}, "framework_options.elastic.min_nodes", ""),
        ({"elastic": {"min_nodes": 2, "max_restarts": 0}}, "framework_options.elastic.max_restarts", ""),
        ({"elastic": {"least": 2}}, "framework_options.elastic.least", "has no option least"),
        (
            {"elastic": {"min_nodes": 2}, "run": Run(script="train.py", warm_start=True)},
            "framework_options.elastic",
            "run.warm_start",
        ),
        (
            {"elastic": {"min_nodes": 2}, "framework": "pytorch-fsdp", "options": {"launcher": "accelerate"}},
            "framework_options.elastic",
            "accelerate",
        ),
    ],
)
def test_what_cannot_be_elastic_is_refused_where_it_says_so(fields: dict[str, Any], path: str, words: str) -> None:
    found = [item for item in planned(**fields).errors if item.subject == path]
    assert len(found) == 1, planned(**fields).errors
    assert words in found[0].message


def test_a_plan_tells_that_the_master_is_advisory_and_asks_for_checkpoints_that_all_hosts_see() -> None:
    found = {item.code: item.severity for item in planned({"min_nodes": 2}).findings}
    assert found["elastic"] is Severity.INFO
    assert found["elastic-checkpoint"] is Severity.WARNING
    shared = Recovery(checkpoint=Checkpoint(dir="/shared/c", shared=True))
    assert "elastic-checkpoint" not in {item.code for item in planned({"min_nodes": 2}, recovery=shared).findings}


def test_it_is_rendered_for_scripts_and_refused_where_the_first_node_ends_all(tmp_path: Path) -> None:
    made = ejected(tmp_path, A, B, framework_options={"elastic": {"min_nodes": 1}})
    script = next(file.text for file in TARGETS["scripts"].render(made) if file.path == "node1/run.sh")
    assert "--nnodes=1:2" in script
    assert '--rdzv-endpoint="${NODE0_ADDRESS}:${MASTER_PORT}"' in script
    assert '--local-addr="${NODE1_ADDRESS}"' in script
    assert TARGETS["scripts"].check(made) == []
    for name in ("slurm", "kubernetes"):
        assert [item.subject for item in TARGETS[name].check(made)] == ["framework_options.elastic"]


def test_clocks_that_c10d_could_not_bear_are_refused() -> None:
    judged = [hosts.judge_clock("gpu1", skew_s, 0.1, [skew_s, 0.0, 0.0], min_nodes=2) for skew_s in (0.5, 5, -30)]
    codes = [[(item.code, item.severity.value) for item in judgement.findings] for judgement in judged]
    assert codes == [[], [("clock-skew", "warning")], [("elastic-clock", "error")]]


def test_the_file_for_scripts_names_no_rank_where_torchrun_numbers_them() -> None:
    made = planned({"min_nodes": 2})
    for node, other in zip(made.nodes, plan(make_job(A, B, C), SEED).nodes, strict=True):
        told, static = (yaml.safe_load(dict(texts)[CONFIG_FILE])["distributed"] for texts in map(_texts, (node, other)))
        assert not {"rank", "node_rank"} & set(told)
        assert (told["node_count"], told["min_nodes"]) == (3, 2)
        assert static["rank"] == static["node_rank"] == other.node_rank


def _texts(node: PlannedNode) -> list[tuple[str, str]]:
    return [(file.path, file.text) for file in node.files]
