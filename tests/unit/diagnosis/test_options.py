"""What is told where not the script failed but what dttui was asked to put around it: a framework's words, a prefix."""

from __future__ import annotations

import pytest
from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.models import Cause
from dttui.jobs.event_log import EventLog
from dttui.planning.planner import plan
from dttui.spec.loader import parse_job
from tests.unit.diagnosis.test_diagnosis import evidence, failed, node
from tests.unit.diagnosis.test_evidence import read
from tests.unit.seed_cluster import SEED

JOB = """distributed_training:
  name: x
  dataset: none
  framework: {framework}
  run: {run}
  cluster: {{nodes: [{{id: llm-training-env}}]}}
"""
NODE = "llm-training-env"


def refused(framework: str, words: str, run: str = "{script: train.py, args: [--lr, '0.1']}") -> Cause:
    """Return why a job failed whose script refused arguments."""
    directory = jobs.create("refused")
    directory.document.write_text(JOB.format(framework=framework, run=run))
    made = plan(parse_job(directory.document.read_bytes(), "job.yaml"), SEED, {})
    directory.plan.write_text(made.model_dump_json())
    assert made.framework == framework
    log = EventLog(directory.events)
    data = {"time": 1.0, "exit_code": 2, "tail": ["usage: train.py [-h]", f"train.py: error: {words}"]}
    log.add(EventKind.RANK_FAILED, "rank 0", attempt=0, node=NODE, rank=0, data=data)
    log.add(EventKind.JOB_STATE, "rank 0", data={"state": "FAILED"})
    cause = diagnose(read(directory)).cause
    assert cause is not None
    return cause


def test_a_script_that_refuses_what_deepspeed_is_given_is_not_written_for_it() -> None:
    cause = refused(
        "deepspeed", "unrecognized arguments: --deepspeed --deepspeed_config /var/tmp/d/jobs/x/0/ds_config.json"
    )
    assert (cause.code, cause.words) == (
        "framework-arguments",
        "train.py is not written for framework: deepspeed, which adds arguments that it refused: --deepspeed, "
        "--deepspeed_config.",
    )
    assert cause.advice == (
        "Choose the framework that the script is written for.",
        "Or write framework_options.config_for: none, and nothing is added to its arguments.",
    )


def test_of_another_framework_the_advice_is_of_no_option_of_deepspeed() -> None:
    cause = refused("megatron-lm", "unrecognized arguments: --tensor-model-parallel-size=1 --micro-batch-size=4")
    assert cause.code == "framework-arguments"
    assert not any("config_for" in text for text in cause.advice)


@pytest.mark.parametrize(
    ("framework", "words"),
    [
        ("deepspeed", "unrecognized arguments: --lr 0.1"),
        ("deepspeed", "argument --lr: expected one argument"),
        ("pytorch-ddp", "unrecognized arguments: --deepspeed"),
    ],
    ids=["the person's own", "a wrong value", "nothing is added"],
)
def test_arguments_of_the_person_s_own_are_corrected_in_run_args(framework: str, words: str) -> None:
    cause = refused(framework, words)
    assert cause.code == "arguments"
    assert cause.advice == ("Correct run.args; the script's own --help says what it takes.",)


def test_arguments_of_a_command_are_corrected_there() -> None:
    cause = refused("command", "unrecognized arguments: --lrr 0.1", "{command: [yolo, train], per: node}")
    assert cause.advice == ("Correct run.command; the script's own --help says what it takes.",)


def test_where_both_are_refused_run_args_are_to_be_corrected_too() -> None:
    cause = refused("deepspeed", "unrecognized arguments: --lr 0.1 --deepspeed --deepspeed_config x.json")
    assert cause.code == "framework-arguments"
    assert cause.advice[-1].startswith("Correct run.args")


def test_a_prefix_that_ends_before_any_rank_started_is_told_with_what_the_preflight_had_seen() -> None:
    unseen = "b: the interpreter behind run.prefix could not be looked at: it exited with 7"
    prefix = ("env", "-i", "bash", "-c", "exit 7")
    broken = node("b", 2, 3, state="failed", ranks_started=(), prefix=prefix, unseen=unseen)
    cause = diagnose(evidence(failed(None, exit_code=7), nodes=(node("a", 0, 1), broken))).cause
    assert cause is not None
    assert (cause.code, cause.words) == (
        "prefix-failed",
        f"run.prefix on b ended with exit code 7 before the script ran. The preflight had warned of it: {unseen}.",
    )
    assert cause.advice == ("Try on b: env -i bash -c 'exit 7' /opt/python --version",)


def test_a_prefix_is_not_blamed_once_a_rank_has_started() -> None:
    ran = node("b", 2, 3, state="failed", ranks_started=(2,), prefix=("within",))
    cause = diagnose(evidence(failed(None, exit_code=7), nodes=(node("a", 0, 1), ran))).cause
    assert cause is not None
    assert cause.code == "exit-code"


def test_prefix_and_what_the_preflight_said_of_it_are_read_of_the_job() -> None:
    directory = jobs.create("prefix")
    text = JOB.format(framework="pytorch-ddp", run="{script: train.py, prefix: [within, 'a b']}")
    directory.plan.write_text(plan(parse_job(text, "job.yaml"), SEED, {}).model_dump_json())
    log = EventLog(directory.events)
    data = {"code": "python-unknown", "severity": "warning", "subject": NODE}
    log.add(EventKind.FINDING, "could not be looked at", attempt=0, data=data)
    log.add(EventKind.NODE_STATE, "", attempt=0, node=NODE, data={"state": "failed", "ranks_started": []})
    log.add(EventKind.RANK_FAILED, "", attempt=0, node=NODE, data={"time": 1.0, "exit_code": 7, "tail": []})
    log.add(EventKind.JOB_STATE, "", data={"state": "FAILED"})
    cause = diagnose(read(directory)).cause
    assert cause is not None
    assert cause.words.endswith("The preflight had warned of it: could not be looked at.")
    assert "within 'a b' " in cause.advice[0]
