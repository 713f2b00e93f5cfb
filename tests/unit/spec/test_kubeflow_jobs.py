"""TrainJobs, PyTorchJobs and MPIJobs of Kubeflow, as jobs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from dttui.spec import DocumentError
from dttui.spec.importing import Imported, merge, translate_file
from tests.unit.spec.imported import data, keys

TRAIN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: bert
  labels: {team: a}
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    numNodes: 4
    numProcPerNode: 8
    image: foo
    command:
      - torchrun
      - train.py
    args: ["--lr", "$(LR)", "--cost", "$$(LR)"]
    env:
      - {name: LR, value: "0.1"}
      - name: HF_TOKEN
        valueFrom: {secretKeyRef: {name: hf, key: token}}
    resourcesPerNode:
      limits: {nvidia.com/gpu: 8, cpu: 1500m, memory: 4Gi}
"""
PYTORCH = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: mnist
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          nodeSelector: {a: b}
          containers:
            - name: sidecar
              image: a
            - name: pytorch
              workingDir: /opt
              command: ["/bin/bash", "-c"]
              args:
                - |
                  set -e
                  torchrun --nnodes=$PET_NNODES --nproc_per_node=4 \\
                    --node_rank=$RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT train.py
              resources: {limits: {nvidia.com/gpu: "4"}}
    Worker:
      replicas: 3
      template:
        spec:
          containers:
            - name: pytorch
"""
MPI = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: horovod}
spec:
  slotsPerWorker: 2
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - image: horovod/horovod
              command: [mpirun]
              args: [-np, "8", -x, NCCL_DEBUG=INFO, python, train.py]
    Worker:
      replicas: 4
      template:
        spec:
          containers:
            - resources: {limits: {nvidia.com/gpu: 2}}
"""


def imported(text: str) -> Imported:
    return merge([translate_file(text, "f.yaml")], "x")


def refused(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        imported(text)
    return str(caught.value)


def told(found: Imported) -> str:
    return "\n".join(f"{note.place}: {note.message}" for note in found.notes)


def test_a_train_job_starts_its_command_on_each_node() -> None:
    found = imported(TRAIN)
    assert data(found) == {
        "name": "bert",
        "framework": "pytorch-ddp",
        "run": {
            "script": "train.py",
            "args": ["--lr", "0.1", "--cost", "$(LR)"],
            "env": {"LR": "0.1"},
            "secrets": ["HF_TOKEN"],
        },
        "resources": {"gpu": {"count": 8}, "cpu": {"cores": 2, "memory": "4GiB"}},
    }
    trainer = "spec.trainer"
    assert keys(found) == {"metadata": 3, f"{trainer}.numNodes": 10, f"{trainer}.image": 12, f"{trainer}.env[1]": 19}


def test_processes_of_a_train_job_are_its_runtimes_where_nothing_says_them() -> None:
    text = TRAIN.replace("    numProcPerNode: 8\n", "").replace("nvidia.com/gpu: 8, ", "")
    found = imported(text)
    assert "gpu" not in data(found)["resources"]
    assert 'how many processes a node has is said by the runtime "torch-distributed"' in told(found)


def test_inline_code_is_started_once_a_node() -> None:
    text = TRAIN.replace(
        "      - torchrun\n      - train.py\n", "      - python3\n      - -c\n      - |\n        print(1)\n"
    )
    run = data(imported(text))["run"]
    assert run["command"][:3] == ["python3", "-c", "print(1)\n"]
    assert run["per"] == "node"


def test_a_pytorch_job_counts_master_and_workers() -> None:
    found = imported(PYTORCH)
    assert data(found) == {
        "name": "mnist",
        "framework": "pytorch-ddp",
        "run": {"script": "train.py", "workdir": "/opt"},
        "resources": {"gpu": {"count": 4}},
    }
    text = told(found)
    assert "f.yaml:26:7: this says how many nodes, and not which: 4" in text
    assert "f.yaml:14:15: not carried over: another container besides" in text
    assert "f.yaml:23:" in text  # What the script says of the port, in its line of the whole file.
    assert "f.yaml:27:7: not carried over: the workers start something else than the master" in text


def test_an_elastic_pytorch_job_may_shrink_and_starts_again() -> None:
    policy = "spec:\n  elasticPolicy: {minReplicas: 2, maxReplicas: 4, maxRestarts: 10, rdzvBackend: c10d}\n"
    found = imported(PYTORCH.replace("spec:\n", policy, 1))
    assert data(found)["framework_options"] == {"elastic": {"min_nodes": 2, "max_restarts": 10}}
    assert "this says how many nodes, and not which: 2–4" in told(found)


def test_each_replica_of_a_plain_script_is_a_rank() -> None:
    text = PYTORCH.replace('["/bin/bash", "-c"]', "[python, train.py]").replace('"4"', '"1"')
    text = text.replace(text[text.index("              args:\n") : text.index("              resources")], "")
    assert data(imported(text))["run"] == {"script": "train.py", "workdir": "/opt"}
    assert data(imported(text))["resources"]["gpu"]["count"] == 1


def test_an_mpi_job_shares_its_processes_out_among_its_workers() -> None:
    found = imported(MPI)
    assert data(found) == {
        "name": "horovod",
        "framework": "horovod",
        "run": {"script": "train.py", "env": {"NCCL_DEBUG": "INFO"}},
        "resources": {"gpu": {"count": 2}},
    }
    assert "this says how many nodes, and not which: 4" in told(found)
    assert "cannot be shared out evenly" in told(imported(MPI.replace('"8"', '"7"')))


def test_without_gpus_a_node_has_one_process_on_its_cpus() -> None:
    found = imported(MPI.replace("nvidia.com/gpu: 2", "cpu: 2").replace('"8"', '"4"'))
    assert data(found)["resources"]["gpu"] == {"count": 0}
    assert "no GPUs are asked for" in told(found)


CONTAINER = "spec.pytorchReplicaSpecs.Master.template.spec.containers"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            TRAIN.replace("numNodes: 4", "numNodes: [4]"),
            "f.yaml:10:15: spec.trainer.numNodes: expected a number of nodes",
        ),
        (
            TRAIN.replace("    command:\n      - torchrun\n      - train.py\n", "    command: torchrun\n"),
            "f.yaml:13:14: spec",
        ),
        (TRAIN[: TRAIN.index("  trainer:")], "f.yaml:7:3: spec.trainer: what it starts is said by its runtime"),
        (
            PYTORCH.replace("Master", "Boss").replace("Worker", "Hand"),
            "PyTorchJob: it has neither a master nor workers",
        ),
        (PYTORCH.replace("containers:", "containrs:"), f"{CONTAINER}: PyTorchJob: there is no container"),
        (MPI.replace("Launcher", "Lunch"), "MPIJob: it has no Launcher"),
        (MPI.replace("python, train.py", "/home/mpiuser/pi"), '"/home/mpiuser/pi" is no program in Python'),
        (
            MPI.replace("              command: [mpirun]\n", "").replace("[-np", "[--np"),
            "what it starts is not said here",
        ),
    ],
)
def test_mistakes_in_an_object_have_their_places(text: str, words: str) -> None:
    assert words in refused(text)


def test_other_objects_of_the_file_are_told_of() -> None:
    other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n"
    found = imported(f"{other}{TRAIN}---\n# nothing more\n")
    assert data(found)["name"] == "bert"
    assert "f.yaml:1:1: not carried over: the document that begins in line 1, a Kubernetes ConfigMap" in told(found)
    assert keys(found)["spec.trainer.numNodes"] == 14


@pytest.mark.parametrize("value", ["null", "[]", "7", "x", "{a: {b: [c]}}"])
@pytest.mark.parametrize("text", [TRAIN, PYTORCH, MPI])
def test_no_value_of_another_type_is_more_than_a_mistake(text: str, value: str) -> None:
    lines = text.splitlines()
    for index, line in enumerate(lines):
        key, colon, _rest = line.partition(":")
        if not colon or "{" in key:
            continue
        changed: list[Any] = [*lines[:index], f"{key}: {value}"]
        indent = len(line) - len(line.lstrip())
        rest = lines[index + 1 :]
        while rest and len(rest[0]) - len(rest[0].lstrip()) > indent:
            rest.pop(0)
        with suppress(DocumentError):
            imported("\n".join([*changed, *rest]))
