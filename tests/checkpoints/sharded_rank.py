"""A rank that saves its part of several steps by torch.distributed.checkpoint."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor.placement_types import Shard

from tests.checkpoints.recorder import wait_to_be_watched
from tests.checkpoints.writers import state_of
from tests.gloo import leave


def main() -> None:
    warnings.simplefilter("ignore")
    wait_to_be_watched(Path(sys.argv[1]))
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for step in range(int(sys.argv[2])):
        state = state_of(step)
        state["model"] = {name: distribute_tensor(value, mesh, [Shard(0)]) for name, value in state["model"].items()}
        save(state, checkpoint_id=f"{sys.argv[1]}/step-{step}")
        dist.barrier()
    leave()


if __name__ == "__main__":
    main()
