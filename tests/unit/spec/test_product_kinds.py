"""Files of kinds that are known: named as what they are, by `import` and where a job file is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from dttui.cli import main
from dttui.spec import DocumentError
from dttui.spec.importing import merge, translate_file
from dttui.spec.loader import parse_document

REFUSED = {
    "an AzureML job": (
        "command: python train.py ${{inputs.a}}\ncode: src\nenvironment: azureml:AzureML-acpt@latest\n",
        "type: pipeline\njobs:\n  train:\n    component: azureml:train:1\n",
        "$schema: https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json\ntrial: {command: x}\n",
    ),
    "a Determined experiment": ("name: a\nentrypoint: python train.py\nsearcher: {name: single, metric: loss}\n",),
    "a docker-compose file": (
        "x-common: &common\n  image: a\nservices:\n  train:\n    <<: *common\n    command: torchrun train.py\n",
        "version: '3'\nservices:\n  a: {build: .}\n",
    ),
    "a GitHub workflow": (
        "name: ci\non: [push]\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps: [{run: make}]\n",
    ),
    "a GitLab CI configuration": (
        ".base: &base\n  image: python\nstages: [test]\ntest:\n  <<: *base\n  script: [make test]\n",
        "train:\n  stage: a\n  script:\n    - !reference [.setup, script]\n    - python train.py\n",
    ),
    "an Azure pipeline": ("trigger: [main]\npool: {vmImage: ubuntu}\nsteps:\n  - script: make\n",),
    "a CircleCI configuration": ("version: 2.1\njobs: {a: {docker: [{image: x}]}}\nworkflows: {w: {jobs: [a]}}\n",),
    "a DVC pipeline": ("stages:\n  train: {cmd: python train.py, deps: [data]}\n",),
    "an MLflow project": ("name: a\nentry_points:\n  main: {command: python train.py}\n",),
    "a conda environment": ("name: a\nchannels: [conda-forge]\ndependencies: [python, pip: [torch]]\n",),
    "a pre-commit configuration": ("repos:\n  - repo: x\n    hooks: [{id: ruff}]\n",),
    "a configuration of accelerate for SageMaker": (
        "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: DATA_PARALLEL\nec2_instance_type: ml.p3.16xlarge\n",
    ),
    "a SageMaker training job": ('{"TrainingJobName": "a", "RoleArn": "b", "ResourceConfig": {"InstanceCount": 2}}',),
    "a Vertex AI job": ("displayName: a\njobSpec: {workerPoolSpecs: [{replicaCount: 1}]}\n",),
    "a MosaicML run": ("name: a\ncompute: {gpus: 8, cluster: r1}\ncommand: composer train.py\n",),
    "a configuration of a Ray cluster": ("cluster_name: a\nprovider: {type: aws}\nmax_workers: 2\n",),
    "a W&B sweep": ("program: train.py\nmethod: grid\nparameters: {lr: {values: [1, 2]}}\n",),
    "an NNI experiment": ("trialCommand: python train.py\nsearchSpaceFile: a.json\n",),
    "an inventory of dttui": ("environments:\n  - {id: a, host: b}\n",),
    "a model's configuration of Hugging Face": (
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "vocab_size": 32000}',
    ),
    "a Hydra configuration": (
        "defaults:\n  - model: resnet\n  - _self_\nlr: 0.1\n",
        "lr: 1\nhydra: {run: {dir: out}}\n",
    ),
    "a configuration of Lightning's command line": ("trainer: {devices: 8}\nmodel: {class_path: a.B}\n",),
    "an Anyscale job": ("name: a\nentrypoint: python main.py\nimage_uri: x\n",),
    "a Beaker experiment": ("version: v2\ntasks:\n  - {name: a, image: {beaker: x}, resources: {gpuCount: 8}}\n",),
    "a Polyaxon operation": ("version: 1.1\nkind: component\nrun: {kind: pytorchjob}\n",),
    "an OpenPAI job": ("protocolVersion: 2\ntype: job\ntaskRoles: {}\n",),
    "a configuration of NeMo": ("name: gpt\ntrainer: {devices: 8}\nexp_manager: {}\nmodel: {}\n",),
    "a configuration of LLM Foundry": ("max_duration: 1ep\ntrain_loader: {}\nfsdp_config: {}\nprecision: amp_bf16\n",),
    "a configuration of Detectron2": ("_BASE_: a.yaml\nMODEL: {WEIGHTS: x}\nSOLVER: {MAX_ITER: 9}\n",),
    "a configuration of Hugging Face's Trainer": (
        "model_name_or_path: a\nbf16: true\nnum_train_epochs: 1\noutput_dir: o\nlogging_steps: 1\n",
    ),
    "a Helm chart": ("apiVersion: v2\nname: a\nversion: 0.1.0\n",),
    "an Ansible play": ("- hosts: all\n  tasks: [{command: ls}]\n",),
    "a template of Helm": ("apiVersion: batch/v1\nkind: Job\n{{- if .Values.gpu }}\nspec: {}\n{{- end }}\n",),
    "a KubeRay RayJob": ("apiVersion: ray.io/v1\nkind: RayJob\nspec: {entrypoint: python a.py}\n",),
    "a KubeRay RayCluster": ("apiVersion: ray.io/v1alpha1\nkind: RayCluster\n",),
    "a Kubeflow TFJob": ("apiVersion: kubeflow.org/v1\nkind: TFJob\n",),
    "a Kubernetes Job": ("apiVersion: batch/v1\nkind: Job\nspec: {template: {}}\n",),
    "a Volcano job": ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n",),
    "a Kubernetes Deployment": ("apiVersion: apps/v1\nkind: Deployment\n---\napiVersion: v1\nkind: Service\n",),
    "an Argo workflow": ("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n",),
    "an object of Kubernetes": ("apiVersion: example.com/v1\nkind: Something\n",),
    "a Makefile": ("CC = gcc\n\ntrain: data\n\ttorchrun train.py\n", ".PHONY: a\na:\n\t@echo\n"),
    "a Dockerfile": ("# syntax=docker/dockerfile:1\nFROM pytorch/pytorch\nRUN pip install x\n",),
    "a Jupyter notebook": ('{\n "cells": [\n  {"cell_type": "code", "source": []}\n ]\n}\n',),
    "a Python script": ("#!/usr/bin/env python3\nprint(1)\n", "import torch\n\ntorch.zeros(1)\n"),
    "a TOML file of a program of its own": ('title = "a"\n[train]\nlr = 1\n',),
    "an INI file of a program of its own": ("[train]\nlr = 1\n",),
    "a Jenkinsfile": ("pipeline {\n  agent any\n}\n",),
    "a Terraform file": ('resource "aws_instance" "a" {\n}\n',),
    "a definition of an Apptainer image": ("Bootstrap: docker\nFrom: pytorch\n",),
    "a web page": ("<!DOCTYPE html>\n<html></html>\n",),
}
"""Kinds as they are called, each with files of it."""
NAMES = {
    "train.py": "a Python script",
    "a.ipynb": "a Jupyter notebook",
    "Makefile": "a Makefile",
    "build/rules.mk": "a Makefile",
    "Dockerfile.gpu": "a Dockerfile",
    "pyproject.toml": "a TOML file of a program of its own",
    "README.md": "a Markdown text",
    "run.bat": "a batch file of Windows",
    "main.tf": "a Terraform file",
}
TAKEN = {
    "a SkyPilot task": "num_nodes: 2\nrun: torchrun train.py\n",
    "a dstack task": "type: task\ncommands: [torchrun train.py]\n",
    "a FlagScale experiment": "experiment: {task: {type: train, entrypoint: a.py}, runner: {nnodes: 1}}\n",
    "a LLaMA-Factory configuration": "model_name_or_path: a\nstage: sft\nfinetuning_type: lora\n",
    "an axolotl configuration": "base_model: a\nadapter: lora\ndatasets: []\n",
    "a configuration of PyTorch DDP": "distributed: {backend: nccl, world_size: 2}\nnodes: [{name: a}]\n",
    "a configuration of accelerate": "distributed_type: FSDP\nnum_processes: 8\n",
    "a configuration of DeepSpeed": '{"train_batch_size": 8, "fp16": {"enabled": true}}\n',
    "a Kubeflow TrainJob": (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec: {trainer: {command: [torchrun, a.py]}}\n"
    ),
    "a shell script": "#!/bin/bash\ntorchrun train.py\n",
    "a script for PBS": "#!/bin/bash\n#PBS -l select=2\ntorchrun train.py\n",
    "a configuration of torchx": "[cli:run]\ncomponent=dist.ddp\n[component:dist.ddp]\nscript=a.py\n",
    "a hostfile": "gpu1 slots=8\n",
}
CASES = [(kind, text) for kind, texts in REFUSED.items() for text in texts]


def refused(text: str, name: str = "f") -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        merge([translate_file(text, name)], "x")
    return caught.value


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_a_file_of_a_known_kind_is_refused_by_its_name_with_what_to_do(kind: str, text: str) -> None:
    (problem,) = refused(text).problems
    assert problem.message == f"this is {kind}"
    assert problem.hint
    assert problem.line is not None


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_where_a_job_file_is_wanted_it_is_named_too(kind: str, text: str) -> None:
    with pytest.raises(DocumentError, match=f"this is {kind}"):
        parse_document(text, "f")


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_a_name_tells_the_kind_where_it_is_of_one_only(name: str, kind: str) -> None:
    assert f"this is {kind}" in str(refused("x: 1\n", name))


@pytest.mark.parametrize(("kind", "text"), TAKEN.items())
def test_what_is_imported_is_pointed_to_import(kind: str, text: str) -> None:
    assert merge([translate_file(text, "dir/f")], "x").job
    with pytest.raises(DocumentError) as caught:
        parse_document(text, "dir/f")
    (problem,) = caught.value.problems
    assert problem.message == f"this is {kind}"
    assert problem.hint == "dttui import dir/f makes a job file of it."


def test_validate_and_plan_point_to_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sky.yaml"
    file.write_text(TAKEN["a SkyPilot task"])
    for verb in ("validate", "plan"):
        assert main([verb, str(file)]) == 2
        assert f"this is a SkyPilot task; dttui import {file} makes a job file of it." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("distributed_training:\n  name: a\n  searcher: x\n", "distributed_training.searcher: unknown key"),
        (
            "name: a\nframework: pytorch-ddp\nrun: {script: a.py}\nresources: {}\n",
            'the key "distributed_training" is missing',
        ),
        ("distributed_training: {name: a\nFROM x\n", "not valid YAML"),
        ("hello", 'expected a mapping of keys to values, found "hello"'),
        ("horovod_config: {nodes: x}\njobs: {a: {steps: []}}", "jobs: unknown key"),
    ],
)
def test_a_job_file_with_mistakes_is_of_no_other_kind(text: str, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_document(text, "f")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "bf16: true\nlearning_rate: 1e-4\nepochs: 3\nbatch: 8\n",
        "environment: prod\ncompute: gpu\ncode: src\n",
        "type: task\nid: 1\n",
        "services: [a, b]\n",
        "resources: {cpu: 1}\nrun: {script: a}\n",
        "jobs: [1, 2]\n",
    ],
)
def test_keys_that_many_have_make_no_kind(text: str) -> None:
    assert "this file is of no form that can be imported" in str(refused(text))


def test_two_keys_of_accelerate_in_a_long_file_are_no_misspelling() -> None:
    text = "environment: a\nmodel: b\ndata: c\nlr: 1\n"
    assert "did you mean" not in str(refused(text))


def test_keys_of_a_file_that_is_no_yaml_tell_its_kind_too() -> None:
    (problem,) = refused("apiVersion: batch/v1\nkind: Job\n\tspec: {\n", "f.yaml").problems
    assert problem.message == "this is a Kubernetes Job"
    assert (problem.line, problem.column) == (2, 1)


def test_a_known_kind_that_is_taken_keeps_its_mistakes_of_yaml() -> None:
    assert "opened in line 2" in str(refused("num_nodes: 2\nrun: [torchrun\n"))


@pytest.mark.parametrize("directive", ["#PBS -l select=2:ngpus=4", "#BSUB -n 8", "#$ -pe mpi 4"])
def test_a_script_of_another_scheduler_is_followed_and_its_directives_are_told(directive: str) -> None:
    text = f"#!/bin/bash\n{directive}\ncd $PBS_O_WORKDIR\ntorchrun --nproc_per_node 4 train.py\n"
    found = merge([translate_file(text, "run.sh")], "x")
    assert found.job.run is not None
    assert found.job.run.script == "train.py"
    (note,) = [note for note in found.notes if "is told" in note.message]
    assert note.place is not None
    assert note.place.line == 2
    (problem,) = refused(f"#!/bin/bash\n{directive}\necho hi\n", "run.sh").problems
    assert problem.message.startswith("a script for ")


def test_many_documents_in_one_file_are_refused_and_deep_ones_told() -> None:
    assert "a second document begins here" in str(refused("a: 1\n---\n" * 60))
    deep = "apiVersion: v1\nkind: Pod\nspec: " + "{a: " * 60 + "1" + "}" * 60
    assert "this is a Kubernetes Pod" in str(refused(deep))
