"""job.yaml in and out: the seed's examples, every mistake with its place, and files that load back to the same job."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from dttui.i18n import set_language
from dttui.spec import DocumentError, Job, dump_job, load_job, parse_job
from dttui.spec.models import AllReduce, Checkpoint, Cluster, DatasetRef, Node, Recovery, Run, Visualization
from dttui.spec.problems import Problem, format_path
from tests.unit.spec.test_messages import FRAMEWORKS

SEEDS = Path(__file__).parents[1] / "seeds"
"""The examples of the seed DSL, word for word."""
DATA_PARALLEL, MODEL_PARALLEL, PIPELINE_PARALLEL = (
    (SEEDS / f"{name}.yaml").read_text() for name in ("data_parallel", "model_parallel", "pipeline_parallel")
)


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as caught:
        parse_job(textwrap.dedent(text), "job.yaml")
    return caught.value.problems


def job_of(body: str) -> Job:
    return parse_job(f"distributed_training:\n  name: a\n{textwrap.indent(textwrap.dedent(body), '  ')}", "job.yaml")


@pytest.mark.parametrize("text", [DATA_PARALLEL, MODEL_PARALLEL, PIPELINE_PARALLEL])
def test_the_seeds_examples_load_as_they_stand_and_load_back(text: str) -> None:
    job = parse_job(text, "seed")
    assert parse_job(dump_job(job), "again") == job


def test_the_seeds_values_mean_what_they_say() -> None:
    job = parse_job(DATA_PARALLEL, "seed")
    assert job.strategy.data_parallel is not None
    assert job.strategy.data_parallel.batch_size == 256
    resources = job.cluster.nodes[0].resources
    assert resources is not None
    gpu = resources.gpu
    assert gpu is not None
    assert (gpu.count, gpu.memory) == (4, 16 * 1000**3)
    assert job.cluster.master is job.cluster.nodes[0]
    assert parse_job(MODEL_PARALLEL, "seed").cluster.master is not None
    assert job.monitoring.metrics == ("throughput", "loss")


def test_a_misspelt_key_is_named_with_file_line_column_and_the_nearest_key(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("distributed_training:\n  name: a\n  run:\n    scrpt: train.py\n")
    with pytest.raises(DocumentError) as caught:
        load_job(path)
    assert str(caught.value.problems[0]) == (
        f'{path}:4:5: distributed_training.run.scrpt: unknown key; did you mean "script"?'
    )
    assert str(caught.value).splitlines()[1:3] == ["        scrpt: train.py", "        ^"]


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    problems = problems_of(
        """\
        distributed_training:
          nme: x
          framework: pytorch_ddp
          script: train.py
          run:
            args: [--steps, 100, ~]
            env: {1BAD: x}
            workdir: [a]
          dataset: {id: d, verion: 2}
          strategy:
            type: dataparallel
            data_parallel: {batch_size: "256", num_workers: -1}
          cluster:
            nodes:
              - {id: a, role: mastr}
          resources: {gpu: {memory: 16 gigs}, cpu: {cores: 1.5}}
          monitoring: {metrics: loss, visualization: {enabled: yes}}
          recovery: {heartbeat_s: .inf, max_restarts: }
        """
    )
    told = [(item.line, item.column, format_path(item.path[1:]), item.message, item.hint) for item in problems]
    assert told == [
        (2, 3, "nme", "unknown key", 'did you mean "name"?'),
        (
            3,
            14,
            "framework",
            f'{FRAMEWORKS}, found "pytorch_ddp"',
            'did you mean "pytorch-ddp"?',
        ),
        (4, 3, "script", "unknown key", "it belongs to distributed_training.run"),
        (6, 26, "run.args[2]", "expected text, found nothing", ""),
        (
            7,
            11,
            "run.env.1BAD",
            'expected the name of an environment variable (letters, digits and _), found "1BAD"',
            "",
        ),
        (8, 14, "run.workdir", "expected text, found a list", ""),
        (9, 20, "dataset.verion", "unknown key", 'did you mean "version"?'),
        (
            11,
            11,
            "strategy.type",
            'expected one of data_parallel, model_parallel, pipeline_parallel or hybrid, found "dataparallel"',
            'did you mean "data_parallel"?',
        ),
        (12, 33, "strategy.data_parallel.batch_size", 'expected a whole number, found "256"', "write batch_size: 256"),
        (12, 53, "strategy.data_parallel.num_workers", "expected a number of at least 0, found -1", ""),
        (
            15,
            23,
            "cluster.nodes[0].role",
            'expected one of master, worker or parameter_server, found "mastr"',
            'did you mean "master"?',
        ),
        (
            16,
            29,
            "resources.gpu.memory",
            "expected a number with a unit (B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB), such as 16GB, "
            'found "16 gigs"',
            "",
        ),
        (16, 52, "resources.cpu.cores", "expected a whole number, found 1.5", ""),
        (17, 25, "monitoring.metrics", 'expected a list, found "loss"', "write metrics: [loss]"),
        (17, 56, "monitoring.visualization.enabled", 'expected true or false, found "yes"', "write enabled: true"),
        (18, 27, "recovery.heartbeat_s", "expected a number, found inf", ""),
        (18, 47, "recovery.max_restarts", "expected a whole number, found nothing", ""),
    ]


def test_a_missing_key_is_reported_at_the_mapping_that_lacks_it() -> None:
    (problem,) = problems_of("distributed_training:\n  framework: command\n")
    assert (problem.line, problem.column) == (1, 1)
    assert str(problem) == 'job.yaml:1:1: distributed_training: the key "name" is missing'


def test_mistakes_of_the_yaml_are_told_together_with_those_of_the_job_that_do_not_follow_from_them() -> None:
    problems = problems_of(
        "distributed_training:\n  name: a\n  name: b\n  run: !!python/name:os {}\n  framework: x\n  x: 1\n"
    )
    assert [problem.line for problem in problems] == [3, 4, 5, 6]


def test_what_is_said_of_a_collective_in_two_places_must_agree() -> None:
    same = "communication: {allreduce: {algorithm: ring}, collective_ops: {allreduce: {algorithm: ring}}}"
    assert job_of(same).communication.all_reduce == AllReduce(algorithm="ring")
    assert job_of("communication: {collective_ops: {allreduce: {algorithm: tree}}}").communication.all_reduce
    with pytest.raises(DocumentError, match=r"this is not what collective_ops\.allreduce says; give it once"):
        job_of("communication: {allreduce: {algorithm: tree}, collective_ops: {allreduce: {algorithm: ring}}}")


def test_plain_scalars_count_as_written_where_text_is_expected() -> None:
    job = job_of("version: 1.10\nrun: {script: train.py, args: [--steps, 100, --lr, 1e-4, -x, 010, --flag, true]}")
    assert job.version == "1.10"
    assert job.run is not None
    assert job.run.args == ("--steps", "100", "--lr", "1e-4", "-x", "010", "--flag", "true")
    env = job_of("run: {script: a, env: {NCCL_DEBUG: 1, ON: yes, T: 12:30}}").run
    assert env is not None
    assert env.env == {"NCCL_DEBUG": "1", "ON": "yes", "T": "12:30"}


def test_quoted_numbers_are_no_numbers() -> None:
    with pytest.raises(DocumentError, match="expected a whole number"):
        job_of('strategy: {zero_stage: "1"}')


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("nope", 'expected none, found "nope"'),
        ("5", "expected a mapping of keys to values, found 5"),
        ("{version: v1}", 'the key "id" is missing'),
        ("[none]", "expected a mapping of keys to values, found a list"),
    ],
)
def test_a_dataset_is_a_mapping_or_none(dataset: str, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        job_of(f"dataset: {dataset}")
    assert [words in str(problem) for problem in caught.value.problems] == [True]


def test_a_dataset_may_be_named_or_refused() -> None:
    assert job_of("dataset: none").dataset == "none"
    assert job_of("dataset: {id: imagenet, version: 1}").dataset == DatasetRef(id="imagenet", version="1")


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("{}", "run: give exactly one of script, module and command"),
        ("{script: a, module: b}", "give exactly one of script, module and command, not script and module"),
        ("{command: [a], args: [x]}", "run.args: args belong to script and module"),
        ("{command: []}", "run.command: expected a list of at least 1"),
        ("{script: -c}", "run.script: must not begin with a dash"),
        ('{script: ""}', "run.script: must not be blank"),
        ("{module: a b}", "run.module: expected a dotted module name"),
        ('{script: a, args: ["\\0"]}', "run.args[0]: must not contain a NUL character"),
        ("{script: a, secrets: [A B]}", "run.secrets[0]: expected the name of an environment variable"),
    ],
)
def test_what_runs_is_one_of_three(run: str, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        job_of(f"run: {run}")
    assert words in str(caught.value)


def test_second_masters_and_repeated_nodes_are_reported_where_they_stand() -> None:
    problems = problems_of(
        """\
        distributed_training:
          name: a
          cluster:
            nodes:
              - {id: a, role: master}
              - {id: b, role: master}
              - {id: a}
        """
    )
    assert [(item.line, item.column) for item in problems] == [(6, 23), (7, 14)]
    assert '"a" is the master already' in problems[0].message
    assert 'node "a" is listed twice' in problems[1].message


@pytest.mark.parametrize("name", ['""', '"  "', '"\\e[2J"', '"a\\nb"', '"\\u202e"'])
def test_a_name_is_something_that_can_be_shown(name: str) -> None:
    with pytest.raises(DocumentError, match=r"must (not be blank|consist of printable characters)"):
        parse_job(f"distributed_training: {{name: {name}}}", "job.yaml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'the file is empty; a job begins with "distributed_training:"'),
        ("# nothing\n", "the file is empty"),
        ("[]", "expected a mapping of keys to values, found a list"),
        ("hello", 'expected a mapping of keys to values, found "hello"'),
        ("{}", 'the key "distributed_training" is missing'),
        ("name: x\n", 'put everything under "distributed_training:"'),
        ("distributed_trainin: {name: a}\n", 'did you mean "distributed_training"?'),
        ("training_strategy: {type: hybrid}\n", "unknown key; this is no job file"),
        ("distributed_training:\n", "expected a mapping of keys to values, found nothing"),
        ("distributed_training: {name: a}\nextra: 1\n", "job.yaml:2:1: extra: unknown key"),
    ],
)
def test_a_document_that_is_no_job_is_told_what_a_job_begins_with(text: str, words: str) -> None:
    assert words in str(problems_of(text)[0])


def test_a_path_that_cannot_be_read_is_a_problem_without_a_line(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "this is a directory, not a file")):
        with pytest.raises(DocumentError) as caught:
            load_job(path)
        assert str(caught.value) == f"{path}: {words}"


def test_only_what_was_set_is_written() -> None:
    job = Job(name="a", run=Run(script="train.py"), cluster=Cluster(nodes=(Node(id="x"),)))
    assert dump_job(job) == (
        "distributed_training:\n  name: a\n  run:\n    script: train.py\n  cluster:\n    nodes:\n      - id: x\n"
    )


@pytest.mark.parametrize(
    "text",
    ["1e5", "0o17", "010", "yes", "~", "null", "true", "12:30", "2024-01-01", "a: b", "# x", "-", " lead", "é中文",
     "a\nb", "a\tb", "x\x85y", "x\u2028y", "'", '"', "*a", "&a", "!a", "", "=", "<<", "08", "+.5e3", "${JOB_ID}"],
)  # fmt: skip
def test_any_argument_survives_being_written_and_read(text: str) -> None:
    job = Job(name="a", run=Run(script="s", args=(text,), env={"X": text}))
    assert parse_job(dump_job(job), "again") == job


def test_quantities_and_free_values_survive_being_written_and_read() -> None:
    job = job_of(
        """\
        dataset: none
        model: {parameters: 7e9, precision: bf16}
        resources:
          gpu: {count: 0, memory: 1.5GiB}
          network: {bandwidth: 2.5Gbps, latency: 0ms, interface: eth0}
          storage: {shared: {path: /data, size: 10TB}}
        monitoring: {visualization: {enabled: true, dashboard: {a: [1, {b: ~, c: 1.5}], "1": x}}}
        """
    )
    assert parse_job(dump_job(job), "again") == job
    assert "memory: 1.5GiB" in dump_job(job)


def test_nested_defaults_that_were_set_are_kept() -> None:
    recovery = Recovery(max_restarts=0, checkpoint=Checkpoint(dir="/ckpt", shared=False))
    written = dump_job(Job(name="a", recovery=recovery))
    assert "max_restarts: 0" in written
    assert "shared: false" in written
    assert "heartbeat_s" not in written


def test_a_free_dashboard_may_hold_anything() -> None:
    dashboard = job_of("monitoring: {visualization: {dashboard: {script: [nme, {deep: 1}]}}}").monitoring.visualization
    assert dashboard == Visualization(dashboard={"script": ("nme", {"deep": 1})})


def test_numbers_that_json_cannot_hold_are_refused_even_there() -> None:
    (problem,) = problems_of(
        "distributed_training:\n  name: a\n  monitoring: {visualization: {dashboard: {x: [1, .nan]}}}\n"
    )
    assert (problem.line, problem.column) == (3, 51)
    assert problem.message == "expected a number that JSON can hold"


def test_messages_follow_the_language_of_the_moment() -> None:
    set_language("zh")
    try:
        assert "job.yaml:1:1" in str(problems_of("{}")[0])
    finally:
        set_language("en")
