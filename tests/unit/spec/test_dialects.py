"""Documents of other forms as jobs: the seeds' own, each value and each note, mistakes with their places."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dttui.inventory.models import Environment, GpuResources, Inventory, Resources
from dttui.launch.local_plan import make_local_plan
from dttui.planning.planner import plan
from dttui.planning.submission import Submission
from dttui.spec import DocumentError, Job, Loaded, dump_job, load_document, load_job, parse_document, parse_job
from dttui.spec.findings import Severity
from dttui.spec.key_places import as_problem
from dttui.spec.problems import format_path
from tests.unit.spec.test_messages import FRAMEWORKS

SEEDS = Path(__file__).parents[1] / "seeds"
REQUEST = SEEDS / "training_task_request.json"
HOROVOD = SEEDS / "horovod_config.yaml"
LANGUAGE = SEEDS / "large_language_model_training.yaml"
VISION = SEEDS / "computer_vision_training.yaml"


def notes(loaded: Loaded) -> dict[str, str]:
    """Line and column by key."""
    return {note.place.path: f"{note.place.line}:{note.place.column}" for note in loaded.notes if note.place}


def warnings(loaded: Loaded) -> dict[str, str]:
    return {note.subject: note.message for note in loaded.notes if note.severity is Severity.WARNING}


def told(text: str) -> list[tuple[int | None, int | None, str, str, str]]:
    with pytest.raises(DocumentError) as caught:
        parse_job(text, "job")
    return [(item.line, item.column, format_path(item.path), item.message, item.hint) for item in caught.value.problems]


def outcome(text: str) -> object:
    """Return the job, or whether all problems there are instead have a place."""
    try:
        return parse_document(text, "x").job
    except DocumentError as error:
        return all(problem.line is not None for problem in error.problems)


def as_data(job: Job) -> dict[str, object]:
    return job.model_dump(mode="json", exclude_unset=True)


@pytest.fixture
def cluster() -> Inventory:
    """The three environments of seed 004, 14 GPUs in all."""
    return Inventory(
        environments=tuple(
            Environment(name=name, id=id_, host=name, resources=Resources(gpu=GpuResources(count=count, type="A100")))
            for name, id_, count in (
                ("pytorch-dev-env", "env-001", 2),
                ("llm-training-env", "env-003", 4),
                ("nlp-research-lab", "env-005", 8),
            )
        )
    )


def test_the_request_of_seed_004_is_a_job_with_nothing_left_over() -> None:
    loaded = load_document(REQUEST)
    assert loaded.dialect == "training-task-request"
    assert loaded.notes == ()
    assert as_data(loaded.job) == {
        "name": "gpt3-pretraining",
        "framework": "deepspeed",
        "dataset": {"id": "dataset-001", "version": "version-001"},
        "strategy": {
            "type": "hybrid",
            "data_parallel_size": 2,
            "pipeline_parallel_size": 4,
            "tensor_parallel_size": 8,
        },
        "cluster": {"nodes": [{"id": "env-001", "role": "master"}, {"id": "env-003"}, {"id": "env-005"}]},
        "model": {"name": "model-001"},
    }
    assert load_job(REQUEST) == loaded.job


def test_its_plan_says_that_64_ways_do_not_fit_14_gpus_and_where(cluster: Inventory) -> None:
    text = REQUEST.read_text()
    loaded = parse_document(text, "request.json")
    found = make_local_plan(Submission(loaded.job, cluster, SEEDS, text, "request.json", loaded.notes))
    degrees = next(item for item in found.findings if item.code == "degrees")
    assert degrees.severity is Severity.ERROR
    assert "64" in degrees.message
    assert "14" in degrees.message
    assert str(degrees.place) == "request.json:17:25"
    assert degrees.place is not None
    assert degrees.place.path == "distributedConfig.strategy.tensorParallel"
    assert [line.strip() for line in as_problem(degrees, "x").render().splitlines()[1:]] == ['"tensorParallel": 8', "^"]
    missing = next(item for item in found.findings if item.code == "run-missing")
    assert missing.place is not None
    assert (str(missing.place), missing.place.path) == ("request.json:1:1", "run")
    assert found.world_size == 14


def test_a_finding_about_a_node_of_the_request_is_shown_at_its_id(cluster: Inventory) -> None:
    text = REQUEST.read_text().replace('"env-003"', '"env-004"')
    found = make_local_plan(Submission(parse_job(text, "r.json"), cluster, SEEDS, text, "r.json"))
    unknown = next(item for item in found.findings if item.code == "unknown-environment")
    assert unknown.place is not None
    assert (str(unknown.place), unknown.place.path) == ("r.json:11:28", "distributedConfig.nodeIds[1]")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '"existing"',
            '"new"',
            (6, 17, "launchMode", 'dttui makes no environments: launchMode can only be "existing", found "new"', ""),
        ),
        (
            '"masterNode": "env-001"',
            '"masterNode": "env-01"',
            (
                12,
                19,
                "distributedConfig.masterNode",
                '"env-01" is none of nodeIds; did you mean "env-001"?',
                "",
            ),
        ),
        ('"taskName"', '"taskname"', (2, 3, "taskname", "unknown key", 'did you mean "taskName"?')),
        (
            '"tensorParallel": 8',
            '"tensorParallel": "8"',
            (
                17,
                25,
                "distributedConfig.strategy.tensorParallel",
                'expected a whole number, found "8"',
                "write tensorParallel: 8",
            ),
        ),
        (
            '"env-005"]',
            '"env-001"]',
            (11, 39, "distributedConfig.nodeIds[2]", 'node "env-001" is listed twice', ""),
        ),
        (
            '"deepspeed"',
            '"deep-speed"',
            (
                13,
                18,
                "distributedConfig.framework",
                f'{FRAMEWORKS}, found "deep-speed"',
                'did you mean "deepspeed"?',
            ),
        ),
    ],
)
def test_mistakes_in_a_request_have_its_own_places_and_keys(
    old: str, new: str, problem: tuple[int, int, str, str, str]
) -> None:
    text = REQUEST.read_text()
    assert old in text
    assert told(text.replace(old, new)) == [problem]


def test_all_mistakes_of_a_request_come_at_once() -> None:
    text = REQUEST.read_text().replace('"existing"', '"new"').replace(": 2,", ": 0,").replace('"enabled"', '"enable"')
    assert [item[2] for item in told(text)] == [
        "launchMode",
        "distributedConfig.enable",
        "distributedConfig.strategy.dataParallel",
    ]


def test_a_request_may_be_as_short_as_its_name_and_the_plan_says_what_is_missing() -> None:
    job = parse_job('{"taskName": "x"}', "r.json")
    assert as_data(job) == {"name": "x"}
    codes = {item.code for item in plan(job, Inventory()).findings}
    assert {"run-missing", "dataset-missing", "no-nodes", "framework-missing"} <= codes


def test_a_request_for_several_nodes_that_is_not_distributed_is_contradicted() -> None:
    text = REQUEST.read_text().replace('"enabled": true', '"enabled": false')
    assert warnings(parse_document(text, "r")) == {
        "distributedConfig.enabled": "not carried over: 3 nodes are always distributed"
    }


def test_the_horovod_document_of_seed_001_is_a_job() -> None:
    loaded = load_document(HOROVOD)
    job = loaded.job
    assert loaded.dialect == "horovod-config"
    assert (job.name, job.framework) == ("resnet50", "horovod")
    assert [node.id for node in job.cluster.nodes] == ["node-001", "node-002", "node-003"]
    for node in job.cluster.nodes:
        assert node.resources is not None
        assert node.resources.gpu is not None
        assert node.resources.gpu.count == 4
        assert node.resources.cpu is not None
        assert node.resources.cpu.memory == 32 * 10**9
        assert node.network is not None
        assert node.network.bandwidth == 10 * 10**9
    assert job.model is not None
    assert job.model.name == "resnet50"
    assert as_data(job)["dataset"] == {"id": "imagenet"}
    assert as_data(job)["strategy"] == {
        "type": "data_parallel",
        "data_parallel": {"batch_size": 256},
        "data_parallel_size": 12,
    }
    assert as_data(job)["communication"] == {
        "protocol": "NCCL",
        "allreduce": {"algorithm": "ring"},
        "compression": "fp16",
    }


def test_what_the_horovod_document_says_besides_is_told_with_its_place() -> None:
    loaded = load_document(HOROVOD)
    assert notes(loaded) == {
        "horovod_config.training.epochs": "21:5",
        "horovod_config.parallelism.local_rank": "27:5",
        "horovod_config.optimization.mixed_precision": "36:5",
    }
    assert list(warnings(loaded)) == ["horovod_config.optimization.mixed_precision"]
    assert loaded.job.settings == {
        "epochs": 100,
        "learning_rate": 0.1,
        "gradient_accumulation": 4,
        "gradient_clipping": 1.0,
        "mixed_precision": True,
    }
    handed = loaded.notes[0]
    assert handed.code == "for-script"
    assert handed.message.endswith(": " + ", ".join(loaded.job.settings))


def test_a_compression_that_the_job_does_not_know_goes_to_the_script() -> None:
    text = HOROVOD.read_text().replace('compression: "fp16"', 'compression: "dgc"')
    job = parse_job(text, "h")
    assert job.communication.compression is None
    assert job.settings["compression"] == "dgc"


def test_a_world_size_that_the_nodes_do_not_have_is_an_error_of_the_plan() -> None:
    text = HOROVOD.read_text().replace("world_size: 12", "world_size: 16")
    inventory = Inventory(
        environments=tuple(
            Environment(name=f"node-00{index}", host=f"h{index}", resources=Resources(gpu=GpuResources(count=4)))
            for index in (1, 2, 3)
        )
    )
    found = make_local_plan(Submission(parse_job(text, "h"), inventory, SEEDS, text, "h"))
    degrees = next(item for item in found.findings if item.code == "degrees")
    assert "16" in degrees.message
    assert "12" in degrees.message
    assert degrees.place is not None
    assert degrees.place.path == "horovod_config.parallelism.world_size"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("gpus: 4", "gpu: 4", (5, 7, "horovod_config.nodes[0].gpu", "unknown key", 'did you mean "gpus"?')),
        (
            '"nccl"',
            '"ncl"',
            (
                30,
                14,
                "horovod_config.communication.backend",
                'expected one of nccl, mpi, grpc, gloo, found "ncl"; did you mean "nccl"?',
                "",
            ),
        ),
        (
            '"32GB"',
            '"32 apples"',
            (
                6,
                15,
                "horovod_config.nodes[0].memory",
                "expected a number with a unit (B, KB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB), such as 16GB, "
                'found "32 apples"',
                "",
            ),
        ),
        (
            '"node-002"',
            '"node-001"',
            (8, 17, "horovod_config.nodes[1].hostname", 'node "node-001" is listed twice', ""),
        ),
    ],
)
def test_mistakes_in_a_horovod_document_have_its_own_places_and_keys(
    old: str, new: str, problem: tuple[int, int, str, str, str]
) -> None:
    text = HOROVOD.read_text()
    assert old in text
    assert told(text.replace(old, new, 1)) == [problem]


def test_the_language_model_document_of_seed_001_is_a_job() -> None:
    loaded = load_document(LANGUAGE)
    assert loaded.dialect == "large-language-model-training"
    assert as_data(loaded.job) == {
        "name": "GPT-3规模语言模型训练",
        "strategy": {
            "type": "hybrid",
            "data_parallel": {"batch_size": 8192},
            "data_parallel_size": 1000,
            "tensor_parallel_size": 8,
            "pipeline_parallel_size": 125,
            "recomputation": "full",
        },
        "communication": {"compression": "fp16"},
        "settings": {
            "scope": {
                "gradient_allreduce": "模型副本",
                "tensor_parallel": "注意力层",
                "layer_pipeline": "Transformer层",
            },
            "communication_patterns": [
                {"name": "梯度同步", "pattern": "AllReduce", "frequency": "every_batch", "compression": "fp16"},
                {
                    "name": "激活值交换",
                    "pattern": "AllGather",
                    "frequency": "forward_pass",
                    "optimization": "overlap_computation",
                },
                {
                    "name": "权重更新",
                    "pattern": "Broadcast",
                    "frequency": "backward_pass",
                    "synchronization": "async",
                },
            ],
            "loss_scaling": True,
            "gradient_clipping": 1.0,
            "accumulation_steps": 4,
        },
        "cluster": {"count": 1000},
        "resources": {"gpu": {"count": 8, "memory": "80GB"}, "network": {"bandwidth": "100Gbps"}},
        "model": {"parameters": 175_000_000_000, "precision": "fp16"},
    }


def test_what_the_language_model_document_says_besides_is_told_with_its_place() -> None:
    loaded = load_document(LANGUAGE)
    root = "large_language_model_training"
    assert warnings(loaded) == {
        f"{root}.parallelism_strategy": "1000 × 8 × 125 = 1000000 ways of parallelism, and the document says 8000 GPUs",
    }
    assert notes(loaded) == {
        f"{root}.parallelism_strategy": "12:3",
        f"{root}.parallelism_strategy[0].scope": "14:7",
    }


@pytest.mark.parametrize(
    ("size", "count"), [("175B parameters", 175e9), ("1.3B", 1.3e9), ("350 M", 350e6), ("1T params", 1e12), ("7", 7)]
)
def test_sizes_of_models_are_read_as_people_write_them(size: str, count: float) -> None:
    text = f'large_language_model_training: {{name: x, model_size: "{size}"}}'
    model = parse_job(text, "x").model
    assert model is not None
    assert model.parameters == count


def test_a_size_that_is_none_is_told_at_its_place() -> None:
    text = "large_language_model_training:\n  name: x\n  model_size: huge\n"
    ((line, column, path, message, _hint),) = told(text)
    assert (line, column, path) == (3, 15, "large_language_model_training.model_size")
    assert message == 'expected a number of parameters, such as 175B, found "huge"'


@pytest.mark.parametrize("path", [REQUEST, HOROVOD, LANGUAGE, VISION], ids=lambda path: path.stem)
def test_the_job_of_a_document_is_written_as_a_job_file_that_reads_the_same(path: Path) -> None:
    job = load_job(path)
    assert parse_job(dump_job(job), "job.yaml") == job


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("horovod_confg: {}", "horovod_confg", 'did you mean "horovod_config"?'),
        ("taskname: x", "taskname", 'did you mean "taskName"?'),
        ("horovod_config: {}\naxioms: []", "axioms", "known keys: horovod_config"),
    ],
)
def test_a_form_that_is_nearly_known_is_told_so(text: str, key: str, hint: str) -> None:
    ((_line, _column, path, message, said),) = told(text)
    assert (path, message, said) == (key, "unknown key", hint)


def test_a_job_file_has_no_notes_and_no_dialect() -> None:
    loaded = parse_document("distributed_training: {name: x}", "job.yaml")
    assert (loaded.notes, loaded.dialect) == ((), None)


def test_comments_and_tabs_in_json_are_blanks_and_nothing_else_moves() -> None:
    text = '// head\n{\n\t"taskName": "a//b", // tail\n\t/* a\n\tblock */ "launchMode": "new"\n}\n'
    ((line, column, path, _message, _hint),) = told(text)
    assert (line, column, path) == (5, 25, "launchMode")
    assert parse_job(text.replace('"new"', '"existing"'), "x").name == "a//b"


def test_two_slashes_in_yaml_stay_what_they_are() -> None:
    job = parse_job("{distributed_training: {name: x, run: {script: //srv/a.py, args: [//b]}}}", "x")
    assert job.run is not None
    assert (job.run.script, job.run.args) == ("//srv/a.py", ("//b",))


def test_whatever_is_made_of_the_documents_gives_a_job_or_problems_with_places() -> None:
    generator = random.Random(7)
    texts = [path.read_text() for path in (REQUEST, HOROVOD, LANGUAGE, VISION)]
    words = ["{", "}", "[", "]", ":", "- ", "null", "-1", "1e999", '"', "/*", "//", "\t", "\n", "&a", "*a", "x", "\x00"]
    for _round in range(600):
        text = generator.choice(texts)
        for _change in range(generator.randint(1, 4)):
            start = generator.randrange(len(text) + 1)
            end = min(len(text), start + generator.choice((0, 1, 3, 20)))
            text = text[:start] + generator.choice((*words, "")) + text[end:]
        assert outcome(text)


def test_a_thousand_nodes_take_no_time_worth_telling() -> None:
    nodes = "".join(f"    - {{hostname: n{index}, gpus: 8, memory: 1TB}}\n" for index in range(1000))
    loaded = parse_document("horovod_config:\n  nodes:\n" + nodes, "x")
    assert len(loaded.job.cluster.nodes) == 1000
