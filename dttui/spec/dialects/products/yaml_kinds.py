"""Documents of other products, in YAML or JSON: what each is told by, and what becomes of it.

Each row asks for what is characteristic of its kind; where a document could be of two, it is of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dttui.i18n import N_
from dttui.spec.dialects.products.product_kind import Data, ProductKind, has, has_any, share_of, text_at

_SKY_KEYS = frozenset(
    [
        "name",
        "workdir",
        "num_nodes",
        "resources",
        "envs",
        "secrets",
        "file_mounts",
        "setup",
        "run",
        "volumes",
        "service",
        "config",
        "inputs",
        "outputs",
        "estimated_outputs_size_gigabytes",
        "event_callback",
        "experimental",
        "pool",
        "depends_on",
        "managed_job",
        "job_recovery",
    ]
)
"""Keys at the top of a SkyPilot task (sky/utils/schemas.py)."""
_SKY_RESOURCES = (
    *("accelerators", "infra", "cloud", "region", "zone", "instance_type", "use_spot", "cpus", "memory", "image_id"),
    *("disk_size", "disk_tier", "ports", "any_of", "ordered", "job_recovery", "autostop", "accelerator_args", "labels"),
)
_LLAMAFACTORY_KEYS = (
    "stage",
    "finetuning_type",
    "template",
    "dataset_dir",
    "cutoff_len",
    "do_train",
    "pref_beta",
    "plot_loss",
)
_AXOLOTL_KEYS = (
    *("datasets", "adapter", "sequence_len", "micro_batch_size", "sample_packing", "num_epochs", "chat_template"),
    *("val_set_size", "dataset_prepared_path", "output_dir", "wandb_project", "flash_attention", "rl", "load_in_8bit"),
)
_COMPOSE = ("image", "build", "extends", "command", "deploy", "ports", "volumes", "environment", "env_file")
_MEGATRON = (
    "tensor_model_parallel_size",
    "num_layers",
    "micro_batch_size",
    "global_batch_size",
    "hidden_size",
    "train_iters",
)
_HF_MODEL = (
    "architectures",
    "transformers_version",
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
    "torch_dtype",
    "n_layer",
)
_TRAINER_KEYS = (
    *("per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type", "gradient_checkpointing", "output_dir"),
    *("gradient_accumulation_steps", "logging_steps", "save_steps", "warmup_ratio", "report_to", "max_steps"),
)
"""Of `TrainingArguments` in transformers."""
_DSTACK_OTHERS = ("service", "dev-environment", "fleet", "volume", "gateway")
_GITLAB_WORDS = (
    "stages",
    "before_script",
    "after_script",
    "default",
    "include",
    "image",
    "variables",
    "cache",
    "workflow",
)


def _is_skypilot(data: Data) -> bool:
    is_script = any(isinstance(data.get(key), str) for key in ("run", "setup"))
    if "type" in data or "service" in data or not is_script or share_of(data, _SKY_KEYS) < 0.75:
        return False
    return has_any(data.get("resources"), *_SKY_RESOURCES) or has_any(
        data, "num_nodes", "file_mounts", "setup", "envs", "workdir"
    )


def _is_sky_service(data: Data) -> bool:
    is_service = has_any(data.get("service"), "readiness_probe", "replicas", "replica_policy", "ports")
    return is_service and share_of(data, _SKY_KEYS) >= 0.75


def _is_dstack_task(data: Data) -> bool:
    of_dstack = ("commands", "nodes", "resources", "image", "python", "repos", "fleets", "backends", "docker", "env")
    return data.get("type") == "task" and has_any(data, *of_dstack)


def _is_dstack_other(data: Data) -> bool:
    of_dstack = (
        *("commands", "resources", "image", "python", "ide", "port", "model", "backends", "ssh_config", "placement"),
        *("nodes", "backend", "region", "size", "volume_id", "domain", "gateway", "fleets", "env"),
    )
    return data.get("type") in _DSTACK_OTHERS and has_any(data, *of_dstack)


def _is_flagscale(data: Data) -> bool:
    experiment = data.get("experiment")
    return has(experiment, "task") and has_any(experiment, "runner", "exp_name", "exp_dir", "envs", "deploy")


def _is_flagscale_part(data: Data) -> bool:
    is_train = has(data, "system", "model") and isinstance(data["system"], Mapping)
    return is_train and any(has_any(data.get(key), *_MEGATRON) for key in ("system", "model"))


def _is_ddp_config(data: Data) -> bool:
    section = data.get("distributed", data.get("ddp"))
    if isinstance(section, Mapping) and has_any(section, "world_size", "init_method", "backend", "master_addr"):
        return isinstance(data.get("nodes", section.get("nodes")), tuple) or has(section, "backend", "world_size")
    return has(data, "world_size") and has_any(data, "init_method", "master_addr", "dist_url")


def _is_llamafactory(data: Data) -> bool:
    is_model = has_any(data, "model_name_or_path", "adapter_name_or_path")
    return is_model and sum(key in data for key in _LLAMAFACTORY_KEYS) >= 2


def _is_axolotl(data: Data) -> bool:
    return has(data, "base_model") and sum(key in data for key in _AXOLOTL_KEYS) >= 2


def _is_torchtune(data: Data) -> bool:
    parts = ("model", "tokenizer", "checkpointer", "optimizer", "dataset", "loss")
    named = [text_at(data, part, "_component_") for part in parts]
    return any(name.startswith(("torchtune.", "torch.optim")) for name in named) and any(
        "torchtune" in name for name in named
    )


def _is_litgpt(data: Data) -> bool:
    is_training = isinstance(data.get("train"), Mapping) and has_any(
        data["train"], "global_batch_size", "micro_batch_size", "save_interval", "max_tokens", "lr_warmup_steps"
    )
    return (
        is_training
        and has_any(data, "checkpoint_dir", "model_name", "out_dir")
        and has_any(data, "data", "eval", "devices")
    )


def _is_azureml(data: Data) -> bool:
    if "azuremlschemas" in text_at(data, "$schema"):
        return True
    if data.get("type") in ("command", "sweep", "pipeline", "spark") and has_any(data, "command", "trial", "jobs"):
        return True
    told = [text_at(data, key) for key in ("compute", "environment", "code", "component")]
    return any(text.startswith("azureml:") for text in told) or any(
        text_at(value, "component").startswith("azureml:") for value in _values(data.get("jobs"))
    )


def _is_determined(data: Data) -> bool:
    return has(data, "searcher") and has_any(
        data, "entrypoint", "hyperparameters", "records_per_epoch", "min_validation_period"
    )


def _is_compose(data: Data) -> bool:
    services = data.get("services")
    return isinstance(services, Mapping) and any(has_any(value, *_COMPOSE) for value in services.values())


def _is_github(data: Data) -> bool:
    return has(data, "jobs") and any(has_any(job, "runs-on", "steps", "uses") for job in _values(data["jobs"]))


def _is_gitlab(data: Data) -> bool:
    is_job = any(has(value, "script") and isinstance(value["script"], (str, tuple)) for value in data.values())
    return is_job and (
        has_any(data, *_GITLAB_WORDS) or any(has_any(value, "stage", "rules", "only") for value in data.values())
    )


def _is_hydra(data: Data) -> bool:
    defaults = data.get("defaults")
    is_list = isinstance(defaults, tuple) and any(
        isinstance(item, (str, Mapping)) and (not isinstance(item, Mapping) or len(item) == 1) for item in defaults
    )
    return is_list or has_any(data.get("hydra"), "run", "sweep", "job", "launcher", "searchpath", "output_subdir")


def _is_lightning(data: Data) -> bool:
    is_trainer = has_any(
        data.get("trainer"), "accelerator", "devices", "strategy", "num_nodes", "max_epochs", "max_steps"
    )
    return is_trainer and any(has(data.get(key), "class_path") for key in ("model", "data", "optimizer"))


def _is_hf_model(data: Data) -> bool:
    return has(data, "model_type") and sum(key in data for key in _HF_MODEL) >= 2


def _is_vertex(data: Data) -> bool:
    places = (data, data.get("jobSpec"), data.get("job_spec"))
    return any(has_any(place, "workerPoolSpecs", "worker_pool_specs") for place in places)


def _values(data: object) -> list[object]:
    return list(data.values()) if isinstance(data, Mapping) else []


def _is_dvc(data: Data) -> bool:
    return any(has(stage, "cmd") for stage in _values(data.get("stages")))


def _is_pre_commit(data: Data) -> bool:
    repos = data.get("repos")
    return isinstance(repos, tuple) and any(has(item, "hooks") for item in repos)


def _is_ansible_play(data: Data) -> bool:
    return has(data, "hosts") and has_any(data, "tasks", "roles", "gather_facts")


def _is_trainer(data: Data) -> bool:
    return sum(key in data for key in _TRAINER_KEYS) >= 3


def _is_beaker(data: Data) -> bool:
    tasks = data.get("tasks")
    return isinstance(tasks, tuple) and any(
        has_any(item, "context", "image") and has(item, "resources") for item in tasks
    )


def _is_inventory(data: Data) -> bool:
    return isinstance(data.get("environments"), (tuple, Mapping))


def _is_conda(data: Data) -> bool:
    return isinstance(data.get("dependencies"), tuple) and has_any(data, "channels", "name")


def _is_helm_chart(data: Data) -> bool:
    return has(data, "apiVersion", "name", "version") and "kind" not in data


def _is_mosaic(data: Data) -> bool:
    return has(data, "command") and has_any(data.get("compute"), "gpus", "gpu_type", "cluster", "instance")


def _is_sagemaker(data: Data) -> bool:
    return data.get("compute_environment") == "AMAZON_SAGEMAKER"


def _keys(all_of: str, *one_of: str) -> Callable[[Data], bool]:
    """Return what tells a document by keys at its top: all of the first words, and one of each other."""
    wanted, choices = all_of.split(), [words.split() for words in one_of]
    return lambda data: has(data, *wanted) and all(has_any(data, *words) for words in choices)


_RENDER = N_("Render it, helm template CHART > FILE, and import what comes out of it.")
_HOSTS = N_("Its hosts are named in a job under cluster.nodes; --inventory takes the file.")
_EXPERIMENT = N_("Import the experiment that names it under defaults, conf/train.yaml: launch and script are there.")
_INSTALLED = N_("It says what is installed, and not what is started.")
_SIZES = N_("A job names it: model.config.")
_READ_BY_PROGRAM = N_("It is read by a program: import the command that starts that, dttui import -- COMMAND.")
_TAKEN = (
    ProductKind(N_("a SkyPilot task"), _is_skypilot, "skypilot"),
    ProductKind(N_("a dstack task"), _is_dstack_task, "dstack"),
    ProductKind(N_("a FlagScale experiment"), _is_flagscale, "flagscale"),
    ProductKind(N_("a LLaMA-Factory configuration"), _is_llamafactory, "training_files"),
    ProductKind(N_("an axolotl configuration"), _is_axolotl, "training_files"),
    ProductKind(N_("a torchtune configuration"), _is_torchtune, "training_files"),
    ProductKind(N_("a litgpt configuration"), _is_litgpt, "training_files"),
    ProductKind(N_("a configuration of PyTorch DDP"), _is_ddp_config, "ddp_config"),
)
_BY_PRODUCT = (
    ProductKind(N_("an inventory of dttui"), _is_inventory, remedy=_HOSTS),
    ProductKind(N_("a SkyPilot service"), _is_sky_service, place=("service",)),
    ProductKind(N_("a dstack configuration of another type than task"), _is_dstack_other, place=("type",)),
    ProductKind(N_("the train part of a FlagScale experiment"), _is_flagscale_part, remedy=_EXPERIMENT),
    ProductKind(N_("an AzureML job"), _is_azureml),
    ProductKind(N_("a Determined experiment"), _is_determined, place=("searcher",)),
    ProductKind(N_("a configuration of accelerate for SageMaker"), _is_sagemaker, place=("compute_environment",)),
    ProductKind(
        N_("a SageMaker training job"),
        _keys("", "TrainingJobName AlgorithmSpecification", "ResourceConfig RoleArn StoppingCondition"),
    ),
    ProductKind(N_("a Vertex AI job"), _is_vertex),
    ProductKind(N_("a MosaicML run"), _is_mosaic),
    ProductKind(
        N_("a configuration of a Ray cluster"),
        _keys("cluster_name", "provider available_node_types head_start_ray_commands worker_nodes"),
    ),
    ProductKind(N_("a W&B sweep"), _keys("method parameters", "program metric command")),
    ProductKind(N_("an Anyscale job"), _keys("entrypoint", "compute_config image_uri cloud containerfile")),
    ProductKind(N_("a Beaker experiment"), _is_beaker, place=("tasks",)),
    ProductKind(N_("a Polyaxon operation"), _keys("version kind", "component run matrix")),
    ProductKind(N_("an OpenPAI job"), _keys("protocolVersion", "taskRoles type")),
    ProductKind(
        N_("an NNI experiment"),
        _keys("", "trialCommand trial", "searchSpaceFile searchSpacePath searchSpace tuner trainingService"),
    ),
)
_BY_SHAPE = (
    ProductKind(N_("a GitHub workflow"), _is_github, place=("jobs",)),
    ProductKind(N_("a docker-compose file"), _is_compose, place=("services",)),
    ProductKind(N_("an Azure pipeline"), _keys("", "trigger pool pr", "steps stages jobs")),
    ProductKind(N_("a CircleCI configuration"), _keys("version jobs", "workflows orbs executors")),
    ProductKind(N_("a DVC pipeline"), _is_dvc, place=("stages",)),
    ProductKind(N_("an MLflow project"), _keys("entry_points"), place=("entry_points",)),
    ProductKind(N_("a Travis CI configuration"), _keys("language script")),
    ProductKind(N_("a GitLab CI configuration"), _is_gitlab),
    ProductKind(N_("a conda environment"), _is_conda, remedy=_INSTALLED),
    ProductKind(N_("a pre-commit configuration"), _is_pre_commit),
    ProductKind(N_("a Helm chart"), _is_helm_chart, remedy=_RENDER),
    ProductKind(N_("an Ansible play"), _is_ansible_play, place=("hosts",)),
    ProductKind(N_("a model's configuration of Hugging Face"), _is_hf_model, remedy=_SIZES, place=("model_type",)),
    ProductKind(N_("a configuration of NeMo"), _keys("trainer exp_manager"), remedy=_READ_BY_PROGRAM),
    ProductKind(N_("a configuration of LLM Foundry"), _keys("max_duration train_loader"), remedy=_READ_BY_PROGRAM),
    ProductKind(
        N_("a configuration of Detectron2"),
        _keys("", "MODEL _BASE_", "SOLVER DATASETS INPUT TEST"),
        remedy=_READ_BY_PROGRAM,
    ),
    ProductKind(N_("a configuration of Hugging Face's Trainer"), _is_trainer, remedy=_READ_BY_PROGRAM),
    ProductKind(N_("a configuration of Lightning's command line"), _is_lightning, remedy=_READ_BY_PROGRAM),
    ProductKind(N_("a Hydra configuration"), _is_hydra, remedy=_READ_BY_PROGRAM),
)
YAML_KINDS = (*_TAKEN, *_BY_PRODUCT, *_BY_SHAPE)
"""The order: what is taken as a job, then what names its product, then what is told by the shape of its keys alone."""


def is_accelerate(data: Data) -> bool:
    """Whether it is a configuration of accelerate: it names how it is parallel, or has several keys of one."""
    keys = frozenset(
        [
            "compute_environment",
            "distributed_type",
            "num_machines",
            "num_processes",
            "mixed_precision",
            "machine_rank",
            "main_process_ip",
            "main_process_port",
            "main_training_function",
            "use_cpu",
            "gpu_ids",
            "rdzv_backend",
            "same_network",
            "downcast_bf16",
            "tpu_env",
            "tpu_use_cluster",
            "tpu_use_sudo",
            "enable_cpu_affinity",
            "fsdp_config",
            "deepspeed_config",
            "megatron_lm_config",
            "debug",
            "dynamo_config",
            "parallelism_config",
            "fp8_config",
            "ipex_config",
            "mpirun_config",
        ]
    )
    if isinstance(data.get("distributed_type"), str) or data.get("compute_environment") == "LOCAL_MACHINE":
        return True
    return has_any(data, "num_processes", "num_machines", "compute_environment") and share_of(data, keys) > 0.6


def is_deepspeed(data: Data, known: frozenset[str]) -> bool:
    """Whether it is a configuration of DeepSpeed: `fp16` and `bf16` alone are keys of many, with true or false.

    Args:
        data: what it says.
        known: all keys that DeepSpeed has at the top.
    """
    if has_any(data, "zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"):
        return True
    is_block = any(isinstance(data.get(key), Mapping) and has(data[key], "enabled") for key in ("fp16", "bf16"))
    return (is_block or "train_batch_size" in data) and share_of(data, known) >= 0.5
