"""Advice that several causes give."""

from __future__ import annotations

from dttui.i18n import N_

SMALLER = N_(
    "Use a smaller batch a GPU, more GPUs, or a framework that shards the model; `dttui estimate` says what fits."
)
SHARED_GPU = N_("See with `dttui envs` whether another process holds memory of that GPU.")
LESS_HOST_MEMORY = N_("Use fewer data loader workers, load data piece by piece, or take a host with more memory.")
MEMORY_LIMITS = N_(
    "See on {host} what `ulimit -v` says, and memory.max of its cgroup (in a container, under Slurm); have it raised."
)
WRONG_SIZE = N_("Look at the line that asks for it: a shape, a unit or a count there is too large.")
WHO_KILLS = N_("Ask who ends processes on {host}: a time limit, a scheduler, an administrator, a shutdown.")
SHM = N_("Use fewer data loader workers, or have /dev/shm made larger on that host (in a container: --shm-size).")
FREE_DISK = N_("Make room on that file system, or write checkpoints elsewhere.")
INSTALL = N_("Install it on that host: {python} -m pip install …; or set `python` of the environment to another one.")
INSTALL_MODULE = N_(
    "Install what brings {module} on {host}, often by: {python} -m pip install {module}. Or set `python` of the "
    "environment to an interpreter that has it."
)
SAME_VERSIONS = N_("Install the same versions on every host; the preflight's findings say who differs.")
SAME_CALLS = N_(
    "Look for what only some ranks do: a branch on the rank, data that end earlier, an exception that was caught; and "
    "for sizes that depend on a rank's own data."
)
NAME_CALLS = N_(
    "TORCH_DISTRIBUTED_DEBUG=DETAIL under run.env names the calls that did not meet; DistributedDataParallel over gloo "
    "crashes by it in torch 2.13."
)
SAME_MODEL = N_(
    "Let every rank make the model of the same arguments, and count classes or tokens over all the data, not over its "
    "own part."
)
LOOK_AT_FIRST = N_("Look at the rank that ended first; this one only lost it.")
NETWORK = N_("Check `address` in the inventory, and any firewall between the hosts: NCCL and gloo use any free port.")
LATE_RANK = N_("`dttui logs {job} --rank {missing}` shows what rank {missing} did meanwhile.")
SILENT_RANK = N_(
    "Rank {missing} has printed nothing. While it hangs, `kill -ABRT` of its process makes Python print where it is."
)
BEFORE_INIT = N_(
    "Look at what the script does before init_process_group: it must end on every rank, and about as soon as on the "
    "others; for a long download or preparation raise its `timeout`."
)
BEFORE_HOROVOD = N_(
    "Look at what the script does before hvd.init: it must end on every rank, and about as soon as on the others; for "
    "a long preparation raise communication.rendezvous_timeout."
)
RECORDED = N_(
    "Where torch wrote it down, each rank's last collectives are in nccl_trace_rank_* of the attempt's directory."
)
NCCL_DEBUG = N_("Set NCCL_DEBUG=INFO under run.env and launch again to see on which link.")
ASK_FIRST = N_(
    "Where it is to run without a GPU too: call torch.cuda.set_device(LOCAL_RANK) and .cuda() only where "
    "torch.cuda.is_available()."
)
DRIVER = N_("Install a torch made for an older CUDA, or have the driver of that host updated.")
EXCHANGE = N_("Leave that host out and have the GPU looked at: nvidia-smi -q on the host, and `dmesg` for Xid lines.")
BLOCKING = N_("Launch again with CUDA_LAUNCH_BLOCKING=1 under run.env: the traceback then shows the right line.")
HANGING = N_("Find what the rank that did not come was doing: its last lines, its step, data that end earlier there.")
NOT_SENT = N_(
    "A relative workdir is sent with the job, absolute paths are not: put the file there, or correct the path."
)
STRANGERS = N_(
    "Let nobody but the nodes reach the training address of the master: use a private network, or a firewall."
)
