"""Records the real saves of Hugging Face's Trainer and of Lightning; `python -m tests.checkpoints.record_trainers`.

Needs an interpreter with transformers, accelerate, deepspeed and lightning, which those of the tests have not: what it
wrote is kept in `recorded/`. A name after the command records that one alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.checkpoints.kills import Link, Tree
from tests.checkpoints.recorder import MARK, Operation, mark, recording, wait_to_be_watched

OUT = Path(__file__).parent / "recorded"
STEPS = 8


def hugging_face(root: Path, *, shard: bool = False, **options: Any) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments  # type: ignore[import-not-found]  # is elsewhere

    class Told(TrainerCallback):  # type: ignore[misc]
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.is_world_process_zero:
                mark(root, str(state.global_step))

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=64, max_position_embeddings=16, **sizes))
    if shard:
        save = model.save_pretrained
        model.save_pretrained = lambda *given, **named: save(*given, **{**named, "max_shard_size": "5KB"})
    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(64)]
    base = {"save_steps": 2, "max_steps": STEPS, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    arguments = TrainingArguments(str(root), per_device_train_batch_size=1, **{**base, **options})
    Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Told()]).train()


def lightning(root: Path, *, strategy: Any = "auto", devices: int = 1, **options: Any) -> None:
    import torch
    from lightning.pytorch import LightningModule, Trainer  # type: ignore[import-not-found]  # is elsewhere
    from lightning.pytorch.callbacks import ModelCheckpoint  # type: ignore[import-not-found]  # is elsewhere
    from lightning.pytorch.strategies import ModelParallelStrategy  # type: ignore[import-not-found]  # is elsewhere

    class Model(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(16, 16)

        def configure_model(self) -> None:
            if strategy == "sharded":
                from torch.distributed.fsdp import fully_shard

                fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.layer(batch).sum()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    class Told(ModelCheckpoint):  # type: ignore[misc]
        def on_train_batch_end(self, trainer: Any, *given: Any, **named: Any) -> None:
            super().on_train_batch_end(trainer, *given, **named)
            if trainer.global_step % 2 == 0 and trainer.is_global_zero:
                mark(root, str(trainer.global_step))

    saver = Told(dirpath=root, every_n_train_steps=2, **options)
    kind = (
        ModelParallelStrategy(data_parallel_size=devices, tensor_parallel_size=1) if strategy == "sharded" else strategy
    )
    trainer = Trainer(
        accelerator="cpu", devices=devices, strategy=kind, max_steps=STEPS, callbacks=[saver], logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=root.parent,
    )  # fmt: skip
    data: Any = list(torch.ones(64, 16))
    trainer.fit(Model(), torch.utils.data.DataLoader(data))


_FSDP = {"fsdp": "full_shard", "fsdp_config": {"version": 2, "state_dict_type": "SHARDED_STATE_DICT"}}
_DEEPSPEED = {"deepspeed": {
    "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
}}  # fmt: skip
_SHARDED = {"strategy": "sharded", "devices": 2}
RECORDINGS: dict[str, tuple[Callable[..., None], int, dict[str, Any]]] = {
    "hf-plain": (hugging_face, 1, {}),
    "hf-limit": (hugging_face, 1, {"save_total_limit": 1}),
    "hf-best": (hugging_face, 1, {"save_total_limit": 2, "save_only_model": True}),
    "hf-parts": (hugging_face, 1, {"shard": True, "save_total_limit": 2}),
    "hf-ddp": (hugging_face, 2, {"save_total_limit": 2}),
    "hf-fsdp": (hugging_face, 2, {"save_total_limit": 2, **_FSDP}),
    "hf-deepspeed": (hugging_face, 2, {"save_total_limit": 2, **_DEEPSPEED}),
    "lightning-all": (lightning, 1, {"save_top_k": -1}),
    "lightning-last": (lightning, 1, {"save_top_k": -1, "save_last": True}),
    "lightning-link": (lightning, 1, {"save_top_k": -1, "save_last": "link"}),
    "lightning-best": (lightning, 1, {"save_top_k": 1, "monitor": "loss", "mode": "min", "save_last": True}),
    "lightning-newest": (lightning, 1, {"save_top_k": 1, "save_last": "link"}),
    "lightning-sharded": (
        lightning,
        2,
        {"save_top_k": 2, "monitor": "step", "mode": "max", **_SHARDED},
    ),
    "lightning-sharded-last": (
        lightning,
        2,
        {"save_top_k": -1, "save_last": "link", **_SHARDED},
    ),
}


def _record(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place, "run")
        root.mkdir()
        ranks = RECORDINGS[name][1]
        command = [sys.executable, "-m", "tests.checkpoints.record_trainers", "--write", name, str(root)]
        if ranks > 1:
            command[1:1] = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        with recording(root) as recorder, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if MARK in line:
                    recorder.mark(line.partition(MARK)[2].strip())
        if process.returncode:
            raise SystemExit(f"{name}: exit code {process.returncode}")
        _keep(name, recorder.operations, Tree.of(root))


def _keep(name: str, operations: list[Operation], after: Tree) -> None:
    import importlib.metadata

    sizes: dict[str, Any] = {}
    for path, content in sorted(after.files.items()):
        if isinstance(content, Link):
            sizes[path] = {"link": content.target}
        elif Path(path).name == ".metadata":
            sizes[path] = {"hex": content.hex()}
        elif Path(path).name in ("latest", "trainer_state.json") or path.endswith(".index.json"):
            sizes[path] = {"text": content.decode()}
        else:
            sizes[path] = {"size": len(content)}
    packages = ("torch", "transformers", "accelerate", "deepspeed", "lightning")
    versions = {package: importlib.metadata.version(package) for package in packages}
    told = {"versions": versions, "operations": [list(item) for item in operations], "contents": sizes}
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")
    print(name, len(operations), "operations", [item.path for item in operations if item.kind == "mark"])


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--write"]:
        write, ranks, options = RECORDINGS[arguments[1]]
        root = Path(arguments[2])
        wait_to_be_watched(root)
        write(root, **options)
        sys.stdout.flush()
        if ranks > 1:
            os._exit(0)
        return
    for name in arguments or RECORDINGS:
        _record(name)


if __name__ == "__main__":
    main(sys.argv[1:])
