"""A job in a container: the words of each engine, what must not stand in them, and what does not go together."""

from __future__ import annotations

from typing import Any

import pytest
from dtagent.protocol.probes import ImageReply
from dtagent.protocol.rdma import RdmaPort

from dttui.frameworks.parts.container import without_container
from dttui.launch.command_line import needs_on_host
from dttui.planning.models import PlannedProcess
from dttui.planning.planner import plan
from dttui.planning.resumption import Resume
from dttui.preflight.container import image_drift, judge_image
from dttui.spec.findings import Severity
from dttui.spec.models import Checkpoint, DatasetRef, GpuRequest, Node, NodeResources, Recovery, Run
from tests.unit.container_plans import SIMULATED, A, B, C, bound, container, planned, process_of
from tests.unit.seed_cluster import SEED, host_facts, make_job


def engine_of(process: PlannedProcess) -> list[str]:
    """Return the words of the engine, without the names of variables."""
    words = process.argv[: process.engine_words]
    return [item for item in words if not (item.startswith("--env=") and "=" not in item.removeprefix("--env="))]


def names_of(process: PlannedProcess) -> set[str]:
    return {item.removeprefix("--env=") for item in process.argv if item.startswith("--env=")}


COMMON = [
    "--label=dttui.job=j",
    "--label=dttui.attempt=1",
    "--label=dttui.node_rank=1",
    "--network=host",
    "--ipc=host",
    "--pid=host",
]
SEEN = ["--workdir=/var/job/work", "--volume=/var/job:/var/job", "--volume=/in:/data:ro"]
INSIDE = ["--env=HOME=/var/job", "--env=LOGNAME=dttui", "--env=CUDA_VISIBLE_DEVICES=0,1"]
HEAD = ["run", "--rm", "--pull=never", "--name=dttui-j-1-1-launcher"]
WORDS = {
    "docker": [
        "docker", *HEAD, *COMMON, "--user=1000:100", '--gpus="device=2,3"', *SEEN, *INSIDE, "--shm-size=1g", "torch:2",
    ],
    "podman": [
        "podman", *HEAD, *COMMON, "--user=0:0", "--security-opt=label=disable",
        "--device=nvidia.com/gpu=2", "--device=nvidia.com/gpu=3", *SEEN, *INSIDE, "--shm-size=1g", "torch:2",
    ],
    "apptainer": [
        "apptainer", "exec", "--nv", "--pwd=/var/job/work", "--bind=/var/job:/var/job", "--bind=/in:/data:ro",
        "--shm-size=1g", "torch:2",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("place", "mounted"),
    [
        ("/kept/run7/step-5", []),
        ("/root/jobs/j/0/checkpoints/step-5", ["/root/jobs:/root/jobs"]),
        ("/before/run6/step-5", ["/before/run6:/before/run6"]),
    ],
)
@pytest.mark.parametrize("engine", WORDS)
def test_a_later_attempt_sees_in_its_container_what_it_goes_on_from(
    engine: str, place: str, mounted: list[str]
) -> None:
    recovery = Recovery(checkpoint=Checkpoint(dir="/kept/run7", shared=True))
    made = planned(A, B, run={"container": container(engine)}, recovery=recovery)
    resume = Resume(checkpoint=place, directory=place.rpartition("/")[0])
    anew, going_on = (
        process_of(bound(made, found, directory="/root/jobs/j/1", payload="/p")) for found in (None, resume)
    )
    assert going_on.env == {**anew.env, "DTTUI_RESUME_FROM": place}
    option = "--bind" if engine == "apptainer" else "--volume"
    added = [f"{option}={item}" for item in mounted]
    added += [] if engine == "apptainer" else ["--env=DTTUI_RESUME_FROM"]
    assert [*going_on.argv] == [*anew.argv[:2], *added, *anew.argv[2:]]
    assert going_on.argv[going_on.engine_words :] == anew.argv[anew.engine_words :]


@pytest.mark.parametrize("engine", WORDS)
def test_each_engine_is_told_the_same_in_its_own_words(engine: str) -> None:
    inside = container(engine, mounts=("/in:/data:ro",), options=("--shm-size=1g",))
    made = bound(planned(B, A, run={"container": inside}))
    process = process_of(made, 1)
    assert engine_of(process) == WORDS[engine]
    command = process.argv[process.engine_words :]
    assert command[:2] == ("python3", "/var/job/payload/torchrun.py")
    assert command[-1] == "train.py"
    removal = {
        "docker": ("docker", "rm", "--force", "dttui-j-1-1-launcher"),
        "podman": ("podman", "rm", "--force", "--ignore", "--time=0", "dttui-j-1-1-launcher"),
        "apptainer": (),
    }
    assert process.removal == removal[engine]


@pytest.mark.parametrize(
    ("engine", "gpus", "words", "devices"),
    [
        ("docker", "all", ["--gpus=all"], None),
        ("podman", "all", ["--device=nvidia.com/gpu=all"], None),
        ("apptainer", "all", ["--nv"], None),
        ("docker", "node", ['--gpus="device=${GPU_IDS}"'], "0,1"),
        ("podman", "node", ["--device=nvidia.com/gpu=${GPU0_ID}", "--device=nvidia.com/gpu=${GPU1_ID}"], "0,1"),
    ],
)
def test_the_gpus_that_are_seen_are_counted_as_they_are_inside(
    engine: str, gpus: str, words: list[str], devices: str | None
) -> None:
    process = process_of(planned(A, run={"container": container(engine, gpus=gpus)}))
    found = [item for item in process.argv if item.startswith(("--gpus", "--device", "--nv"))]
    assert found == words
    assert (f"--env=CUDA_VISIBLE_DEVICES={devices}" in process.argv) == (devices is not None)
    assert process.env["CUDA_VISIBLE_DEVICES"] == "${GPU_IDS}"


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_gpus_that_are_named_out_of_order_are_so_inside_too(engine: str) -> None:
    """Inside they are counted as the bus has them: rank 0 had the one of the lower number."""
    node = Node(id=B, resources=NodeResources(gpu=GpuRequest(ids=(3, 0, 2))))
    process = process_of(planned(node, run={"container": container(engine)}))
    assert "--env=CUDA_VISIBLE_DEVICES=2,0,1" in process.argv


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_simulated_gpus_need_none(engine: str) -> None:
    process = process_of(planned("a", inventory=SIMULATED, run={"container": container(engine)}))
    assert not [item for item in process.argv if item.startswith(("--gpus", "--device", "--nv"))]


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_what_hides_gpus_from_itself_gets_none_and_what_counts_them_itself_keeps_its_count(engine: str) -> None:
    def engine_and_value(run: dict[str, Any], *nodes: Any, framework: str, node: int) -> tuple[list[str], str]:
        made = planned(*nodes, framework=framework, run={"container": container(engine), **run})
        process = process_of(made, node)
        return [*process.argv[: process.engine_words]], process.env["CUDA_VISIBLE_DEVICES"]

    roles = (A, C, Node(id=B, role="parameter_server"))
    for node, has_gpus in ((0, False), (1, True), (2, False)):
        words, value = engine_and_value({}, *roles, framework="tensorflow", node=node)
        assert bool([item for item in words if item.startswith(("--gpus", "--device", "--nv"))]) is has_gpus
        assert (value == "") is not has_gpus
        assert has_gpus or not [item for item in words if item.startswith("--env=CUDA_VISIBLE_DEVICES=")]
    words, value = engine_and_value({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, A, framework="pytorch-ddp", node=0)
    assert value == "1"
    assert not [item for item in words if item.startswith("--env=CUDA_VISIBLE_DEVICES=")]
    assert [item for item in words if item.startswith(("--gpus", "--device", "--nv"))]


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("docker", ["--device=/dev/infiniband", "--ulimit=memlock=-1"]),
        ("podman", ["--device=/dev/infiniband", "--ulimit=memlock=-1"]),
        ("apptainer", []),
    ],
)
def test_the_ports_that_nccl_is_told_of_can_be_used_inside(engine: str, words: list[str]) -> None:
    facts = {
        name: host_facts(count, rdma=[RdmaPort("mlx5_0", 1, "ACTIVE", "InfiniBand")])
        for name, count in ((A, 2), (B, 4))
    }
    job = make_job(A, B, run=Run(script="train.py", container=container(engine)))
    for made, expected in ((plan(job, SEED, facts), words), (plan(job, SEED), [])):
        found = process_of(made).argv
        assert [item for item in found if item.startswith(("--device=/dev", "--ulimit"))] == expected


def test_values_of_secrets_and_variables_are_in_no_command_but_those_that_the_client_would_go_by() -> None:
    env = {"TOKENIZERS": "off", "PATH": "/opt/conda/bin:/bin", "HOME": "/home/me"}
    process = process_of(planned(A, run={"env": env, "secrets": ("HF_TOKEN",)}))
    assert {"HF_TOKEN", "TOKENIZERS", "DTTUI_JOB_ID", "PATH=/opt/conda/bin:/bin", "HOME=/home/me"} <= names_of(process)
    assert (process.env["TOKENIZERS"], "PATH" in process.env, "HOME" in process.env) == ("off", False, False)
    process = process_of(planned(A, run={"env": env, "container": container("apptainer", image="/i.sif")}))
    assert names_of(process) == {"PATH=/opt/conda/bin:/bin"}
    # What apptainer refuses as an option stands inside, and is no word of the command.
    assert process.argv[: process.engine_words][-3:] == ("/i.sif", "env", "HOME=/home/me")
    assert without_container(process).argv == process.argv[process.engine_words :]


@pytest.mark.parametrize(
    ("value", "option"),
    [
        ("/a,/b", "--env=PATH=/a,/b"),
        ("/a=1,/b", '--env="PATH=/a=1,/b"'),
        ('="', '--env="PATH=="""'),
        ("=", '--env="PATH=="'),
    ],
)
def test_a_value_is_written_as_apptainer_reads_it(value: str, option: str) -> None:
    inside = container("apptainer", image="/i.sif")
    assert option in process_of(planned(A, run={"env": {"PATH": value}, "container": inside})).argv


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        ("docker", "--env=NVIDIA_VISIBLE_DEVICES=void"),
        ("podman", "--env=NVIDIA_VISIBLE_DEVICES=void"),
        ("apptainer", "--no-nv"),
    ],
)
def test_none_are_none_though_the_host_gives_gpus_to_all_containers(engine: str, word: str) -> None:
    for gpus in ("none", "node"):
        process = process_of(planned("a", inventory=SIMULATED, run={"container": container(engine, gpus=gpus)}))
        assert (word in process.argv[: process.engine_words]) is (gpus == "none")


def test_what_the_job_needs_of_the_host_is_seen_at_the_same_place() -> None:
    made = planned(
        A,
        run={"script": "/srv/code/train.py", "workdir": "/srv/code", "container": container(mounts=("/x:/data:ro",))},
        dataset=DatasetRef(id="imagenet", version="v1"),
        recovery=Recovery(checkpoint=Checkpoint(dir="/ckpt/")),
    )
    volumes = [item for item in process_of(made).argv if item.startswith("--volume=")]
    # The script lies below the working directory, and the dataset below what the job mounts itself.
    assert volumes == [
        "--volume=${DIRECTORY}:${DIRECTORY}",
        "--volume=/ckpt:/ckpt",
        "--volume=/srv/code:/srv/code",
        "--volume=/x:/data:ro",
    ]


def test_the_interpreter_of_the_job_is_that_of_the_image() -> None:
    made = planned(A, run={"python": "/opt/conda/bin/python"})
    assert made.nodes[0].python == "python3"
    inside = process_of(bound(made))
    assert inside.argv[inside.engine_words] == "/opt/conda/bin/python"
    assert needs_on_host(process_of(made)) == ((), ())


def test_each_rank_of_a_node_has_a_container_of_its_own_name() -> None:
    made = planned(A, framework="command", run={"script": None, "command": ("train",)})
    names = [item for process in made.nodes[0].processes for item in process.argv if item.startswith("--name")]
    assert names == [f"--name=dttui-${{JOB_ID}}-${{ATTEMPT}}-0-{rank}" for rank in (0, 1)]


def test_a_prefix_stands_inside() -> None:
    process = process_of(planned(A, run={"prefix": ("numactl", "--localalloc")}))
    assert process.argv[process.engine_words :][:3] == ("numactl", "--localalloc", "${PYTHON}")


@pytest.mark.parametrize(
    ("run", "code", "said"),
    [
        ({"warm_start": True}, "container-warm-start", "run.warm_start cannot be had with run.container"),
        ({"container": container(gpus="none")}, "container-gpus", "run.container.gpus hides them all"),
        (
            {"container": container(image="/i.sif")},
            "container-image",
            "docker knows images by name",
        ),
        ({"container": container("podman", image="docker://x")}, "container-image", "podman knows images by name"),
        ({"container": container(mounts=("/a:/d", "/b:/d:ro"))}, "container-mount", "two mounts lead to /d"),
        ({"container": container(options=("--name=x",))}, "container-option", "--name is not the job's to set"),
        ({"container": container(options=("-d",))}, "container-option", "-d is not the job's to set"),
        ({"workdir": "/a,b"}, "container-path", "/a,b cannot be seen in a container"),
    ],
)
def test_what_does_not_go_together_is_an_error(run: dict[str, Any], code: str, said: str) -> None:
    (finding,) = planned(A, run=run).errors
    assert (finding.code, said in finding.message) == (code, True)


def test_an_image_that_apptainer_fetches_is_told_of() -> None:
    made = planned(A, run={"container": container("apptainer", image="docker://torch:2")})
    assert [item.severity for item in made.findings if item.code == "container-fetch"] == [Severity.INFO]


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (ImageReply(False), "container-engine", "a: there is no docker, which run.container names"),
        (ImageReply(True, False), "container-image", "a: docker has no image torch:2"),
        (
            ImageReply(True, None, detail="permission denied"),
            "container-engine",
            "a: docker cannot be used: perm",
        ),
    ],
)
def test_a_host_that_cannot_start_it_is_named(reply: ImageReply, code: str, said: str) -> None:
    (finding,) = judge_image("a", container(), reply).findings
    assert (finding.code, finding.severity, finding.message[: len(said)]) == (code, Severity.ERROR, said)
    assert finding.hint


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?", "started"),
        (
            "failed to connect to the docker API; check if the path is correct and if the daemon is running",
            "started",
        ),
        ("permission denied while trying to connect to the Docker daemon socket at unix:///x", "without a password"),
        ("Error: database is locked", "Try there: docker ps"),
    ],
)
def test_an_engine_without_its_daemon_is_told_from_one_that_refuses(said: str, hint: str) -> None:
    (finding,) = judge_image("a", container(), ImageReply(True, None, detail=said)).findings
    assert hint in finding.hint


def test_an_image_that_may_be_fetched_by_the_jobs_own_options_is_a_warning() -> None:
    (finding,) = judge_image("a", container(options=("--pull=missing",)), ImageReply(True, False)).findings
    assert finding.severity is Severity.WARNING


def test_hosts_with_another_image_of_that_name_are_told_apart() -> None:
    replies = {name: ImageReply(True, True, f"sha256:{name * 64}") for name in ("a", "b")}
    assert judge_image("a", container(), replies["a"]).text == "docker · torch:2 · aaaaaaaaaaaa"
    (drift,) = image_drift({**replies, "c": replies["a"]})
    assert (drift.usual, drift.usual_nodes, drift.others) == ("a" * 12, ("a", "c"), {"b" * 12: ("b",)})
    assert image_drift({"a": replies["a"], "c": replies["a"]}) == ()
