"""The computer vision document of seed 001 as a job: its batch, its ranks, and what it says besides."""

from __future__ import annotations

from dttui.inventory.models import Inventory
from dttui.planning.planner import plan
from dttui.spec import load_document, load_job, parse_document, parse_job
from dttui.spec.models import Cluster, Node, Run
from tests.unit.seed_cluster import environment
from tests.unit.spec.test_dialects import VISION, as_data, notes, warnings


def test_the_computer_vision_document_of_seed_001_is_a_job() -> None:
    loaded = load_document(VISION)
    assert loaded.dialect == "computer-vision-training"
    assert as_data(loaded.job) == {
        "name": "大规模图像分类模型训练",
        "dataset": {"id": "ImageNet-21K"},
        "strategy": {
            "type": "hybrid",
            "data_parallel": {
                "batch_size": 8192,
                "data_sharding": {"strategy": "random_shuffle", "seed": 42, "drop_last": True},
            },
            "data_parallel_size": 64,
            "tensor_parallel_size": 4,
            "pipeline_parallel_size": 1,
        },
        "communication": {"protocol": "NCCL", "compression": "fp16", "overlap": True},
        "model": {"name": "Vision Transformer"},
        "settings": {
            "gradient_synchronization": {"method": "AllReduce"},
            "model_sharding": ["attention_heads", "mlp_layers", "embedding_layers"],
            "communication_overlap": {"forward": True, "backward": True, "optimization": True},
            "scheduler": "cosine_annealing",
            "warmup_steps": 10000,
            "min_lr": 1e-6,
            "weight_decay": 0.05,
            "dropout": 0.1,
            "label_smoothing": 0.1,
            "mixup": 0.8,
            "cutmix": 0.1,
            "auto_augment": True,
        },
    }


def test_what_the_computer_vision_document_says_besides_is_told_with_its_place() -> None:
    root = "computer_vision_training"
    synchronization = f"{root}.data_parallel_config.gradient_synchronization"
    loaded = load_document(VISION)
    world_size = f"{root}.data_parallel_config.world_size"
    assert notes(loaded) == {world_size: "7:5", f"{synchronization}.method": "17:7"}
    read = "64 is read as the data parallel degree: 64 × 4 = 256 GPUs, which keeps the batch of 8192"
    assert warnings(loaded) == {world_size: read}
    reading = loaded.notes[0]
    assert reading.code == "other-reading"
    other = "write strategy.data_parallel_size: 16 and a batch of 128 × 16 = 2048 in the job."
    assert reading.hint == f"Were it all ranks, data parallel would be 16: {other}"


def test_a_world_size_without_other_degrees_has_one_reading() -> None:
    text = VISION.read_text().replace("tensor_parallel_size: 4", "tensor_parallel_size: 1")
    assert warnings(parse_document(text, "v")) == {}
    text = VISION.read_text().replace("tensor_parallel_size: 4", "tensor_parallel_size: 3")
    (reading,) = (note for note in parse_document(text, "v").notes if note.code == "other-reading")
    assert reading.hint == "Were it all ranks, 3 would have to divide it."


def test_the_computer_vision_document_makes_256_ranks_that_share_its_batch() -> None:
    nodes = tuple(Node(id=f"n{index}") for index in range(32))
    inventory = Inventory(environments=tuple(environment(node.id, 8) for node in nodes))
    job = load_job(VISION).model_copy(
        update={"cluster": Cluster(nodes=nodes), "framework": "megatron-lm", "run": Run(script="/srv/train.py")}
    )
    made = plan(job.model_copy(update={"dataset": "none"}), inventory)
    assert made.world_size == 256
    assert not {"degrees", "global-batch"} & {finding.code for finding in made.findings}


def test_a_batch_of_each_gpu_makes_the_global_one_or_is_held_against_it() -> None:
    text = "computer_vision_training:\n  name: x\n  data_parallel_config: {world_size: 4, batch_size_per_gpu: 8%s}\n"
    data = parse_job(text % "", "x").strategy.data_parallel
    assert data is not None
    assert data.batch_size == 32
    path = "computer_vision_training.data_parallel_config.batch_size_per_gpu"
    contradicted = parse_document(text % ", total_batch_size: 64", "x")
    assert warnings(contradicted) == {path: "8 × 4 makes 32, and the document says 64"}
