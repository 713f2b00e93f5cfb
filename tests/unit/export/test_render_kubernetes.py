"""Manifests for Kubernetes: valid by the models of their APIs, and what a pod does with what they mount."""

from __future__ import annotations

import base64
import importlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from dttui.errors import UsageError
from dttui.export import kubernetes
from dttui.export import run_script as run_script_module
from dttui.export.contents import Export
from dttui.export.kubernetes import render_kubernetes
from dttui.export.writing import write
from dttui.inventory import Inventory
from dttui.inventory.models import CpuResources, GpuResources, Resources
from dttui.planning.models import PlannedNode
from dttui.spec.container import Container
from dttui.spec.models import CpuRequest, Node, NodeResources, Recovery, ResourceDefaults, Run
from tests.integration.headless import dttui_here, shell_job
from tests.unit.export.test_render_scripts import SIMULATED, ejected
from tests.unit.seed_cluster import GB, environment

A, B, C = "pytorch-dev-env", "llm-training-env", "nlp-research-lab"
VERSION = "1.37"
IMAGE = Container(engine="docker", image="registry.example.org/torch:2")
RUN = Run(script="train.py", workdir=".", container=IMAGE, secrets=("HF_TOKEN",), python="/opt/bin/python")
TELL = 'echo "$RANK of $WORLD_SIZE, attempt $DTTUI_ATTEMPT, $(cat data/file), $TOKEN, $DTTUI_NODE_ADDRESSES, $PWD"'
MODELS = {
    "TrainJob": "TrainerV1alpha1TrainJob",
    "TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
    "JobSet": "JobsetV1alpha2JobSet",
}
"""By kind, the class of `kubeflow_trainer_api.models`, which takes a second to import."""

Manifests = dict[str, list[dict[str, Any]]]
"""By file, the documents in it."""


def manifests(made: Export) -> Manifests:
    """Render, and check every document by the models of its API: what they do not know does not come back."""
    files = {file.path: file.text for file in render_kubernetes(made) if file.path.endswith(".yaml")}
    found = {path: list(yaml.safe_load_all(text)) for path, text in files.items()}
    for document in (item for documents in found.values() for item in documents):
        if document["kind"] in MODELS:
            models = importlib.import_module("kubeflow_trainer_api.models")
            model = getattr(models, MODELS[document["kind"]]).from_dict(document)
            assert model is not None
            assert model.to_dict() == document
        else:
            kubernetes_validate.validate(document, VERSION, strict=True)
    for job in found["jobset.yaml"][0]["spec"]["replicatedJobs"]:
        whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job["template"]}
        kubernetes_validate.validate(whole, VERSION, strict=True)
    return found


def jobs_of(found: Manifests) -> list[dict[str, Any]]:
    listed = found["jobset.yaml"][0]["spec"]["replicatedJobs"]
    assert isinstance(listed, list)
    return listed


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    pod = job["template"]["spec"]["template"]["spec"]
    assert isinstance(pod, dict)
    return pod


def mount(found: Manifests, pod: dict[str, Any], at: Path) -> None:
    """Lay out what a pod's volumes hold of ConfigMaps, with the link that the kubelet makes."""
    maps = {item["metadata"]["name"]: item for item in found["files.yaml"]}
    places = {item["name"]: at / item["mountPath"].lstrip("/") for item in pod["containers"][0]["volumeMounts"]}
    for volume in pod["volumes"]:
        sources = [item["configMap"] for item in volume.get("projected", {}).get("sources", [])]
        for source in [*sources, *([volume["configMap"]] if "configMap" in volume else [])]:
            config = maps[source["name"]]
            data = {key: text.encode() for key, text in config.get("data", {}).items()}
            data |= {key: base64.b64decode(text) for key, text in config.get("binaryData", {}).items()}
            real = places[volume["name"]] / "..2026"
            for item in source.get("items") or [{"key": key, "path": key} for key in data]:
                path = real / item["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data[item["key"]])
                path.chmod(item.get("mode", 0o644))
                link = places[volume["name"]] / Path(item["path"]).parts[0]
                if not link.is_symlink():
                    link.symlink_to(Path("..data", link.name))
            if not (link := places[volume["name"]] / "..data").is_symlink():
                link.symlink_to("..2026")


def start(found: Manifests, group: int, index: int, at: Path) -> str:
    """Run what a pod runs, in a directory of its own instead of the root; return what it printed."""
    pod = pod_of(jobs_of(found)[group])
    mount(found, pod, at)
    (container,) = pod["containers"]
    told = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    program, script = container["command"]
    path = at / script.lstrip("/")
    path.write_text(path.read_text().replace("/dttui", f"{at}/dttui"))
    env = {"PATH": os.environ["PATH"], "TOKEN": "x", "ATTEMPT": "3", "JOB_COMPLETION_INDEX": str(index), **told}
    env |= {f"NODE{rank}_ADDRESS": "localhost" for rank in range(3)}
    done = subprocess.run([program, path], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_nodes_that_are_alike_are_one_job_whose_pods_have_gpus_memory_and_secrets(tmp_path: Path) -> None:
    inventory = Inventory(environments=tuple(environment(name, 4) for name in ("a", "b")))
    cpu = ResourceDefaults(cpu=CpuRequest(cores=8, memory=64 * GB))
    made = ejected(tmp_path, "a", "b", inventory=inventory, run=RUN, resources=cpu, recovery=Recovery(max_restarts=2))
    found = manifests(made)
    (job,) = jobs_of(found)
    spec = job["template"]["spec"]
    assert (job["name"], spec["completions"], spec["parallelism"], spec["completionMode"]) == ("node", 2, 2, "Indexed")
    (container,) = pod_of(job)["containers"]
    assert container["image"] == "registry.example.org/torch:2"
    assert container["resources"] == {
        "limits": {"nvidia.com/gpu": 4},
        "requests": {"cpu": "8", "memory": "64000000000"},
    }
    secret = {"secretKeyRef": {"name": "gpt-small-secrets", "key": "HF_TOKEN"}}
    assert {"name": "HF_TOKEN", "valueFrom": secret} in container["env"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in pod_of(job)["volumes"]
    assert found["jobset.yaml"][0]["spec"]["failurePolicy"] == {"maxRestarts": 2}


def test_unequal_nodes_are_a_job_each_and_the_first_is_the_one_that_kubeflow_knows(tmp_path: Path) -> None:
    own: Any = Node(id=C, resources=NodeResources(cpu=CpuRequest(cores=3)))
    found = manifests(ejected(tmp_path, B, A, own, run=RUN))
    groups = [(job["name"], pod_of(job)["containers"][0]["resources"]) for job in jobs_of(found)]
    assert groups == [
        ("node0", {"limits": {"nvidia.com/gpu": 4}, "requests": {"cpu": "32", "memory": "256000000000"}}),
        ("node1", {"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "16", "memory": "128000000000"}}),
        ("node2", {"limits": {"nvidia.com/gpu": 8}, "requests": {"cpu": "3", "memory": "512000000000"}}),
    ]
    start_script = found["files.yaml"][0]["data"]["start.sh"]
    for rank in range(3):
        assert f"NODE{rank}_ADDRESS:=gpt-small-node{rank}-0-0.gpt-small" in start_script
    runtime, train_job = found["trainjob.yaml"]
    labelled = [job["name"] for job in runtime["spec"]["template"]["spec"]["replicatedJobs"] if _is_trainer(job)]
    assert labelled == ["node0"]
    assert runtime["spec"]["mlPolicy"] == {"numNodes": 1} == train_job["spec"]["trainer"]
    assert train_job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]


def _is_trainer(job: dict[str, Any]) -> bool:
    labels = job["template"].get("metadata", {}).get("labels", {})
    return bool(labels.get("trainer.kubeflow.org/trainjob-ancestor-step") == "trainer")


def test_each_pod_is_the_node_of_its_index_with_the_files_of_the_job(tmp_path: Path) -> None:
    run = Run(command=("bash", "-c", TELL), workdir=".", container=IMAGE, secrets=("TOKEN",))
    base = tmp_path / "job"
    (base / "data").mkdir(parents=True)
    (base / "data" / "file").write_text("sent")
    (base / "data" / "binary").write_bytes(b"\xff\x00")
    found = manifests(ejected(tmp_path, "a", "b", inventory=SIMULATED, framework="command", run=run))
    (job,) = jobs_of(found)
    assert pod_of(job)["containers"][0].get("resources") is None
    for index, ranks in ((0, ["0"]), (1, ["1", "2"])):
        at = tmp_path / f"pod{index}"
        lines = sorted(start(found, 0, index, at).splitlines())
        place = f"{at}/dttui/node{index}/work"
        assert lines == [f"{rank} of 3, attempt 3, sent, x, localhost,localhost, {place}" for rank in ranks]
        assert (at / "dttui" / "work" / "data" / "binary").read_bytes() == b"\xff\x00"
        assert sorted(os.listdir(at / "dttui" / "work")) == ["data", "train.py"]


def test_what_starts_containers_on_hosts_is_not_started_in_a_pod(tmp_path: Path) -> None:
    found = manifests(ejected(tmp_path, A, run=RUN))
    script = found["files.yaml"][0]["data"]["node0.sh"]
    assert "docker" not in script
    assert ': "${PYTHON:=/opt/bin/python}"' in script


def test_a_large_working_directory_is_copied_to_a_volume(tmp_path: Path) -> None:
    base = tmp_path / "job"
    base.mkdir()
    (base / "weights.bin").write_bytes(b"\0" * (kubernetes.MOST_BYTES + 1))
    made = ejected(tmp_path, A, run=RUN)
    found = manifests(made)
    claim, pod = found["work.yaml"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    assert [item["metadata"]["name"] for item in found["files.yaml"]] == ["gpt-small-scripts-0"]
    write(tmp_path / "out", render_kubernetes(made))
    assert (tmp_path / "out" / "work" / "weights.bin").stat().st_size == kubernetes.MOST_BYTES + 1
    assert "kubectl cp work/. gpt-small-copy:/work" in (tmp_path / "out" / "README.md").read_text()


def test_scripts_of_many_nodes_are_in_several_maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "MOST_BYTES", 8000)
    inventory = Inventory(environments=tuple(environment(f"n{rank}", 1) for rank in range(6)))
    found = manifests(ejected(tmp_path, *(f"n{rank}" for rank in range(6)), inventory=inventory, run=RUN))
    maps = [item for item in found["files.yaml"] if "scripts" in item["metadata"]["name"]]
    assert len(maps) > 1
    assert {f"node{rank}.sh" for rank in range(6)} < {key for item in maps for key in item["data"]}
    sources = next(item for item in pod_of(jobs_of(found)[0])["volumes"] if item["name"] == "scripts")
    named = [item["configMap"]["name"] for item in sources["projected"]["sources"]]
    assert named == [item["metadata"]["name"] for item in maps]


def test_servers_do_not_keep_a_job_from_succeeding(tmp_path: Path) -> None:
    nodes: tuple[Any, ...] = (Node(id=A), Node(id=C), Node(id=B, role="parameter_server"))
    run = Run(script="train.py", workdir=".", container=IMAGE)
    found = manifests(ejected(tmp_path, *nodes, framework="tensorflow", run=run))
    assert found["jobset.yaml"][0]["spec"]["successPolicy"] == {
        "operator": "All",
        "targetReplicatedJobs": ["node0"],
    }


def test_no_value_of_a_secret_is_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    files = render_kubernetes(ejected(tmp_path, A, run=RUN))
    assert not any("s3cret" in file.text for file in files)
    readme = next(file.text for file in files if file.path == "README.md")
    (command,) = (line.strip() for line in readme.splitlines() if "create secret" in line)
    # What kubectl would get: the words are other users' to read, what they name is not.
    tell = 'kubectl() { echo "$@"; cat "${5#*=*=}"; }\n' + command
    done = subprocess.run(["bash", "-c", tell], capture_output=True, text=True, check=True)
    words, value = done.stdout.split("\n")
    assert words.startswith("create secret generic gpt-small-secrets --from-file=HF_TOKEN=/dev/fd/")
    assert value == "s3cret"


def test_what_may_be_large_is_applied_by_the_server_and_each_file_has_one_row(tmp_path: Path) -> None:
    made = ejected(tmp_path, A, run=RUN)
    readme = next(file.text for file in render_kubernetes(made) if file.path == "README.md")
    applied = [line.strip() for line in readme.splitlines() if "kubectl apply" in line]
    assert applied == [f"kubectl apply --server-side -f {name}.yaml" for name in ("files", "trainjob", "jobset")]
    rows = [line.split("|")[1].strip() for line in readme.splitlines() if line.startswith("| `")]
    assert rows == ["`files.yaml`", "`jobset.yaml`", "`trainjob.yaml`"]
    assert "kubectl delete -f files.yaml -f trainjob.yaml" in readme
    assert "gang scheduling" not in readme, "a single pod waits for none"


def test_the_readme_ends_what_it_began_and_says_how_long_pods_wait_for_each_other(tmp_path: Path) -> None:
    made = ejected(tmp_path, A, B, run=RUN.model_copy(update={"secrets": ("HF_TOKEN",)}))
    readme = next(file.text for file in render_kubernetes(made) if file.path == "README.md")
    assert "kubectl logs --tail=-1 -f -l" in readme
    assert "kubectl delete secret gpt-small-secrets" in readme
    assert "within 300 s of the first" in readme
    assert (
        f"the interpreter is `{made.plan.python}`, and has to have torch, and what else the script imports." in readme
    )
    assert "and the working directory, since it is small" in readme


def test_what_a_container_has_of_its_host_becomes_of_the_pod_or_is_named(tmp_path: Path) -> None:
    options = ("--cap-add=CAP_IPC_LOCK", "--shm-size=16g", "--cap-add=sys_nice")
    container = Container(engine="docker", image="torch:2", mounts=("/srv/data:/data:ro", "/opt:/opt"), options=options)
    made = ejected(tmp_path, A, run=RUN.model_copy(update={"container": container}))
    (pod,) = pod_of(jobs_of(manifests(made))[0])["containers"]
    assert pod["securityContext"] == {"capabilities": {"add": ["IPC_LOCK", "SYS_NICE"]}}
    readme = next(file.text for file in render_kubernetes(made) if file.path == "README.md")
    assert "`/data`, which is `/srv/data` of the hosts, read-only; `/opt`, which is `/opt` of the hosts." in readme
    findings = kubernetes.check_kubernetes(made)
    assert [(item.code, item.severity.value) for item in findings] == [
        ("container-mounts", "warning"),
        ("container-options", "warning"),
    ]
    assert findings[1].message.endswith("left out: --shm-size=16g")
    assert kubernetes.check_kubernetes(ejected(tmp_path, A, run=RUN)) == []


def test_pods_request_what_is_asked_for_else_what_is_declared_and_nothing_is_made_up(tmp_path: Path) -> None:
    def told(cores: int | None, memory: int | None, **fields: Any) -> tuple[dict[str, Any], str]:
        cpu = CpuResources(cores=cores, memory=memory)
        one = environment("a", resources=Resources(gpu=GpuResources(count=1, type="A100"), cpu=cpu))
        made = ejected(tmp_path, "a", inventory=Inventory(environments=(one,)), run=RUN, **fields)
        readme = next(file.text for file in render_kubernetes(made) if file.path == "README.md")
        return pod_of(jobs_of(manifests(made))[0])["containers"][0]["resources"].get("requests", {}), readme

    asked = ResourceDefaults(cpu=CpuRequest(cores=2, memory=5 * GB))
    requests, readme = told(8, 9 * GB, resources=asked)
    assert requests == {"cpu": "2", "memory": str(5 * GB)}
    assert "inventory declares" not in readme
    assert "Nothing says" not in readme
    requests, readme = told(8, None)
    assert requests == {"cpu": "8"}
    assert "it is what the inventory declares" in readme
    assert "Nothing says how much memory `node0` need" in readme
    assert "Nothing says how much cpu" not in readme
    requests, readme = told(None, None)
    assert requests == {}
    assert "it is what the inventory declares" not in readme


@pytest.mark.parametrize(
    ("image", "given", "found"),
    [
        ("torch:2", None, "torch:2"),
        ("torch:2", "torch:3", "torch:3"),
        ("docker://torch:2", None, "torch:2"),
    ],
)
def test_the_image_is_the_jobs_own_or_the_one_that_is_given(
    tmp_path: Path, image: str, given: str | None, found: str
) -> None:
    engine = "apptainer" if "://" in image else "docker"
    run = RUN.model_copy(update={"container": Container.model_validate({"engine": engine, "image": image})})
    made = replace(ejected(tmp_path, A, run=run), image=given)
    assert {pod_of(job)["containers"][0]["image"] for job in jobs_of(manifests(made))} == {found}


@pytest.mark.parametrize("container", [None, Container(engine="apptainer", image="/images/torch.sif")])
def test_without_an_image_it_says_how_to_name_one(tmp_path: Path, container: Container | None) -> None:
    run = RUN.model_copy(update={"container": container})
    with pytest.raises(UsageError, match="give --image"):
        render_kubernetes(ejected(tmp_path, A, run=run))


def test_an_image_is_for_kubernetes_alone(tmp_path: Path) -> None:
    job = shell_job(tmp_path, {"pytorch-dev-env": 1}, "true")
    out = tmp_path / "out"
    done = dttui_here("render", job, "-o", out, "--demo", "--image", "torch:2")
    assert (done.returncode, "--image goes with --target kubernetes alone" in done.stderr) == (2, True)
    done = dttui_here("render", job, "-o", out, "--demo", "--image", "torch:2", "--target", "kubernetes")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(out)) == ["README.md", "files.yaml", "jobset.yaml", "trainjob.yaml"]


def test_the_script_of_a_node_is_made_once_however_many_kinds_of_pods_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_for: list[str] = []
    run_script = run_script_module.run_script

    def counted(export: Export, node: PlannedNode) -> str:
        made_for.append(node.name)
        return run_script(export, node)

    monkeypatch.setattr(kubernetes, "run_script", counted)
    render_kubernetes(ejected(tmp_path, A, B, C, run=RUN))
    assert made_for == [A, B, C]
