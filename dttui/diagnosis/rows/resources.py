"""Memory of GPUs and hosts, shared memory, disks and files that are open."""

from __future__ import annotations

from dttui.diagnosis.advice import FREE_DISK, LESS_HOST_MEMORY, MEMORY_LIMITS, SHARED_GPU, SHM, SMALLER, WHO_KILLS
from dttui.diagnosis.recogniser import Recogniser
from dttui.diagnosis.rows.patterns import GAP, RAISED, WATCHDOG, WIDE_GAP
from dttui.i18n import N_

ROWS: tuple[Recogniser, ...] = (
    # Memory of the GPU.
    Recogniser(
        "cuda-oom",
        N_("The memory of GPU {gpu} was full: {asked} more were asked for, and {free} of {total} were free."),
        (SMALLER, SHARED_GPU),
        rf"{RAISED}{WATCHDOG}(?:CUDA|HIP) out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+)\.? "
        r"(?:GPU (?P<gpu>\d+) has a total capaci?ty of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free)",
    ),
    Recogniser(
        "cuda-oom",
        N_("The memory of GPU {gpu} was full: {asked} more were asked for, and {free} of {total} were free."),
        (SMALLER, SHARED_GPU),
        rf"{RAISED}(?:CUDA|HIP) out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+) "
        r"\(GPU (?P<gpu>\d+); (?P<total>[\d.]+ \w+) total capacity; [^\n]*?(?P<free>[\d.]+ \w+) free",
    ),
    Recogniser(
        "cuda-oom",
        N_("The memory of the GPU was full."),
        (SMALLER, SHARED_GPU),
        rf"{RAISED}{WATCHDOG}(?:(?:CUDA|HIP) out of memory|CUDA error: (?:out of memory|CUBLAS_STATUS_ALLOC_FAILED)"
        rf"|RESOURCE_EXHAUSTED: |.*OOM when allocating tensor|NCCL error{WIDE_GAP}Cuda failure{GAP}out of memory"
        r"|cuDNN error: CUDNN_STATUS_ALLOC_FAILED)",
        rf"NCCL WARN Cuda failure{GAP}'out of memory'",
    ),
    # Shared memory, before disks: its errors speak of a device that is full too.
    Recogniser(
        "shm-full",
        N_("/dev/shm of {host} was full: data loader workers and NCCL pass data through it."),  # noqa: S108 - a sentence
        (SHM,),
        rf"{RAISED}(?:DataLoader worker \(pid\S* \d+\) is killed by signal: Bus error"
        r"|unable to (?:write to file|allocate shared memory\(shm\) for file|open shared memory object|resize file) <"
        r"[^\n]*No space left|.*\[Errno 28\] No space left on device: '/dev/shm/"
        r"|NCCL error.*Error while creating shared memory segment)",
        r"ERROR: Unexpected bus error encountered in worker\.|NCCL WARN Error while creating shared memory segment",
    ),
    # Memory of the host. Whether that was full is for the readings to say.
    Recogniser(
        "memory-refused",
        N_("It asked {host} for {asked} of memory, and was refused."),
        (LESS_HOST_MEMORY, MEMORY_LIMITS),
        r"[\w.]*MemoryError: Unable to allocate (?P<asked>[\d.]+ \w+)",
    ),
    Recogniser(
        "memory-refused",
        N_("It asked {host} for {asked} of memory, and was refused."),
        (LESS_HOST_MEMORY, MEMORY_LIMITS),
        rf"{RAISED}.*DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate "
        r"(?P<asked_bytes>\d+) bytes",
    ),
    Recogniser(
        "worker-killed",
        N_("A data loader worker of this rank was killed from outside (SIGKILL)."),
        (LESS_HOST_MEMORY, WHO_KILLS),
        rf"{RAISED}DataLoader worker \(pid\S* \d+\) is killed by signal: Killed",
    ),
    Recogniser(
        "memory-refused",
        N_("It asked {host} for memory, and was refused."),
        (LESS_HOST_MEMORY, MEMORY_LIMITS),
        r"(?:[\w.]*MemoryError(?::(?! Caught )|$)|std::bad_alloc|[\w.]+: \[Errno 12\] Cannot allocate memory)",
    ),
    Recogniser(
        "host-oom",
        N_("The kernel of {host} killed a process for want of memory."),
        (LESS_HOST_MEMORY,),
        None,
        r"Out of memory: Killed process|oom-kill:",
    ),
    # Disks and files.
    Recogniser(
        "disk-full",
        N_("There was no room left on {host} to write {path}."),
        (FREE_DISK,),
        rf"{RAISED}.*\[Errno (?:28|122)\] (?:No space left on device|Disk quota exceeded): '(?P<path>[^']+)'",
    ),
    Recogniser(
        "disk-full",
        N_("There was no room left on a disk of {host}."),
        (FREE_DISK,),
        rf"{RAISED}(?:.*\[Errno 28\] No space left on device|.*\[Errno 122\] Disk quota exceeded"
        rf"|.*PytorchStreamWriter failed writing file{GAP}file write failed)",
        r"^(?:\S+: )+(?:write error|cannot [^:]+|error writing [^:]+|[^:]*): No space left on device$",
    ),
    Recogniser(
        "too-many-files",
        N_("This rank had more files open than {host} lets it have."),
        (N_("Use fewer data loader workers, or raise the limit on that host (ulimit -n)."),),
        rf"{RAISED}(?:.*\[Errno 24\] Too many open files|received 0 items of ancdata)",
    ),
)
