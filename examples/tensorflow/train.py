"""Trains a small language model on the bytes of a text by TensorFlow, on mirrored workers or with parameter servers.

Which of the two, and who takes part, is in TF_CONFIG; dttui writes it from job.yaml. The text is the dataset of the
job, or this file where there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

CONTEXT = 16
WIDTH = 32
BEFORE = os.environ.get("DTTUI_RESUME_FROM")
"""A checkpoint of an attempt before, to go on from where the directory has none."""

OF_JOB: dict[str, Any] = {}
"""What the job says, where dttui does not start this: `dttui init --from` writes it here."""
TOLD = os.environ.get("DTTUI_CONFIG")
CONFIG: dict[str, Any] = json.loads(Path(TOLD).read_text(encoding="utf-8")) if TOLD else OF_JOB
SETTINGS = {"steps": 100, "learning_rate": 0.003, "seed": 1, "checkpoint_every": None} | (CONFIG.get("settings") or {})
CHECKPOINT: dict[str, Any] = CONFIG.get("checkpoint") or {}
KEPT = CHECKPOINT.get("keep") or 3
"""How many checkpoints stay, the newest."""
INTERVAL_S: float = CHECKPOINT.get("interval_s") or 0
"""From one to the next, where the command line does not say it in steps."""
TASK: dict[str, Any] = json.loads(os.environ.get("TF_CONFIG") or "{}")
WORKERS, SERVERS = (len(TASK.get("cluster", {}).get(kind, ())) for kind in ("worker", "ps"))


class Model:
    """Predicts each next byte from the ones before it."""

    def __init__(self, seed: int) -> None:
        begin = tf.keras.initializers.GlorotUniform(seed)
        self.weights = [tf.Variable(begin(shape)) for shape in ((256, WIDTH), (CONTEXT * WIDTH, 256), (256, 256))]

    def loss(self, samples: tf.Tensor) -> tf.Tensor:
        """The loss of each sample."""
        meanings, inner, outer = self.weights
        seen = tf.reshape(tf.gather(meanings, samples[:, :-1]), (-1, CONTEXT * WIDTH))
        return tf.nn.sparse_softmax_cross_entropy_with_logits(samples[:, -1], tf.nn.gelu(seen @ inner) @ outer)


def read_text() -> tf.Tensor:
    """The bytes of the job's dataset, a file or the files of a directory."""
    source = Path((CONFIG.get("dataset") or {}).get("path", __file__))
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    data = b"".join(path.read_bytes() for path in files)
    if len(data) <= CONTEXT:
        raise SystemExit(f"{source} holds {len(data)} bytes, too few for samples of {CONTEXT} and the next one")
    return tf.cast(tf.io.decode_raw(data, tf.uint8), tf.int32)


def make_strategy() -> tf.distribute.Strategy:
    """The strategy that TF_CONFIG asks for. A worker or parameter server of a chief's serves it here, for ever."""
    if not SERVERS:
        kinds = tf.distribute.experimental.CommunicationImplementation
        kind = kinds.NCCL if os.environ.get("DTTUI_BACKEND") == "nccl" else kinds.RING
        told = CONFIG.get("distributed") or {}
        options = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=told.get("bucket_bytes") or 0, timeout_seconds=told.get("timeout_s"), implementation=kind
        )
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id, protocol="grpc").join()
    return tf.distribute.ParameterServerStrategy(resolver)


def make_step(
    strategy: tf.distribute.Strategy, model: Model, optimizer: Any, make_data: Callable[..., tf.data.Dataset]
) -> Callable[[], float]:
    """A function that takes a step with all workers and returns the mean loss."""

    def step(batches: Any) -> tf.Tensor:
        def on_replica(samples: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model.loss(samples))
                part = loss / strategy.num_replicas_in_sync  # their gradients are summed
            optimizer.apply(tape.gradient(part, model.weights), model.weights)
            return loss

        return strategy.reduce("MEAN", strategy.run(on_replica, args=(next(batches),)), axis=None)

    compiled = tf.function(step)
    if not SERVERS:
        batches = iter(strategy.distribute_datasets_from_function(make_data))
        return lambda: float(compiled(batches))
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    data = coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(make_data))
    of_workers = iter(data)

    def step_of_workers() -> float:
        losses = [coordinator.schedule(compiled, args=(of_workers,)) for _ in range(WORKERS)]
        coordinator.join()
        return float(sum(loss.fetch() for loss in losses)) / WORKERS

    return step_of_workers


def report(**values: float) -> None:
    """A line for people, and one for dttui."""
    print("  ".join(f"{key} {value:g}" for key, value in values.items()), flush=True)
    if path := os.environ.get("DTTUI_METRICS"):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, json.dumps(values).encode() + b"\n")
        os.close(file)


def finish(folder: Path) -> None:
    """Mark a checkpoint as whole once all of it is on the disk, then remove all such but the newest.

    Several hosts may do so at once, where they share the directory.
    """
    for path in (*folder.iterdir(), folder, folder.parent):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    (folder / "COMPLETE").touch()
    for old in sorted(folder.parent.glob("step-*/COMPLETE"))[:-KEPT]:
        old.unlink(missing_ok=True)
        shutil.rmtree(old.parent, ignore_errors=True)


def step_of(folder: Path) -> int:
    """The step after which a checkpoint was kept, by its name: `step-00000012`."""
    return int(folder.name.partition("-")[2])


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=SETTINGS["steps"], help="(%(default)s)")
    every = SETTINGS["checkpoint_every"] or (None if INTERVAL_S else 30)
    parser.add_argument("--checkpoint-every", type=int, default=every, help="steps (%(default)s)")
    rate, seed = SETTINGS["learning_rate"], SETTINGS["seed"]
    parser.add_argument("--learning-rate", type=float, default=rate, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=seed, help="of the weights and of the data (%(default)s)")
    return parser.parse_args()


def main() -> None:
    options = read_options()
    strategy = make_strategy()
    replicas = strategy.num_replicas_in_sync * (WORKERS if SERVERS else 1)
    batch = CONFIG.get("batch_size") or 32 * replicas
    if batch % replicas:
        raise SystemExit(f"a batch of {batch} samples cannot be shared out evenly among {replicas} replicas")
    # TensorFlow takes it for a warning, and goes on until it is killed.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with strategy.scope():
        model = Model(options.seed)
        optimizer = tf.keras.optimizers.Adam(options.learning_rate)
        optimizer.build(model.weights)
        checkpoint = tf.train.Checkpoint(weights=model.weights, optimizer=optimizer)

    # Replicas are alike, so every host keeps one, by a name of its own, as hosts may share the directory.
    directory = Path(os.environ.get("DTTUI_CHECKPOINT_DIR") or "checkpoints")
    rank = int(os.environ.get("RANK", 0))
    # What is on parameter servers is written here too, and not by each of them to its own disk.
    here = tf.train.CheckpointOptions(experimental_io_device="/job:chief/task:0/CPU:0" if SERVERS else None)

    def agreed(value: int) -> int:
        """The least of what all workers say, once all have said it."""
        if SERVERS:
            return value
        of_replicas = strategy.experimental_distribute_values_from_function(lambda _: tf.constant([value], tf.int64))
        return int(tf.reduce_min(strategy.gather(of_replicas, axis=0)))

    done = agreed(max((step_of(mark.parent) for mark in directory.glob("*/COMPLETE")), default=0))
    folder = directory / f"step-{done:08}" if done or not BEFORE else Path(BEFORE)
    done = step_of(folder)
    if done:
        kept = sorted(folder.glob("*.index"))
        checkpoint.read(str(kept[0].with_suffix("")), here).assert_consumed()

    def make_data(context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Batches of samples for one worker; mirrored, they are the same for the same seed."""
        text, shape = read_text(), (batch // replicas, 1)
        pipelines, own = context.num_input_pipelines, context.input_pipeline_id

        def samples(number: tf.Tensor) -> tf.Tensor:
            seed = tf.stack((number * pipelines + own, options.seed))
            if SERVERS:  # Whoever is free takes a step: numbers would be the same for all workers.
                seed = tf.random.uniform((2,), maxval=1 << 40, dtype=tf.int64)
            starts = tf.random.stateless_uniform(shape, seed, 0, len(text) - CONTEXT, tf.int32)
            return tf.gather(text, starts + tf.range(CONTEXT + 1))

        each = context.num_replicas_in_sync // pipelines  # Of the samples' numbers, so many go with a step.
        return tf.data.Dataset.range(done * each, 1 << 40).map(samples)

    def is_due(step: int) -> bool:
        """Whether a checkpoint is to be kept after a step; by the clock of the worker for whom least has passed."""
        if options.checkpoint_every:
            return bool(step % options.checkpoint_every == 0 or step == options.steps)
        return bool(agreed(int(time.monotonic() - kept_at)) >= INTERVAL_S or step == options.steps)

    kept_at = time.monotonic()
    take_step = make_step(strategy, model, optimizer, make_data)
    for step in range(done + 1, options.steps + 1):
        loss = take_step()
        if rank == 0:
            report(step=step, loss=round(loss, 6), learning_rate=options.learning_rate)
        if is_due(step):
            place = directory / f"step-{step:08}"
            checkpoint.write(str(place / f"rank-{rank}"), here)
            agreed(step)
            finish(place)
            kept_at = time.monotonic()


if __name__ == "__main__":
    main()
