"""What the common causes of a failure look like and mean: a table of recognisers, the most particular first.

Each row knows a cause by the words of the exception that ended the process, or by a line that it printed. The words are
those of CPython, torch, NCCL, gloo and others, read in their sources and in reports of people who met them.
"""

from __future__ import annotations

from dttui.i18n import N_
from dttui.services.diagnosis.recogniser import Recogniser

# Advice that several rows give.
_SMALLER = N_(
    "Use a smaller batch a GPU, more GPUs, or a framework that shards the model; `dttui estimate` says what fits."
)
_SHARED_GPU = N_("See with `dttui envs` whether another process holds memory of that GPU.")
LESS_HOST_MEMORY = N_("Use fewer data loader workers, load data piece by piece, or take a host with more memory.")
MEMORY_LIMITS = N_(
    "See on {host} what `ulimit -v` says, and memory.max of its cgroup (in a container, under Slurm); have it raised."
)
WRONG_SIZE = N_("Look at the line that asks for it: a shape, a unit or a count there is too large.")
WHO_KILLS = N_("Ask who ends processes on {host}: a time limit, a scheduler, an administrator, a shutdown.")
SHM = N_("Use fewer data loader workers, or have /dev/shm made larger on that host (in a container: --shm-size).")
FREE_DISK = N_("Make room on that file system, or write checkpoints elsewhere.")
_INSTALL = N_("Install it on that host: {python} -m pip install …; or set `python` of the environment to another one.")
_SAME_VERSIONS = N_("Install the same versions on every host; the preflight's findings say who differs.")
_LOOK_AT_FIRST = N_("Look at the rank that ended first; this one only lost it.")
_NETWORK = N_("Check `address` in the inventory, and any firewall between the hosts: NCCL and gloo use any free port.")
LATE_RANK = N_("`dttui logs {job} --rank {missing}` shows what rank {missing} did meanwhile.")
SILENT_RANK = N_(
    "Rank {missing} has printed nothing. While it hangs, `kill -ABRT` of its process makes Python print where it is."
)
_BEFORE_INIT = N_(
    "Look at what the script does before init_process_group: it must end on every rank, and about as soon as on the "
    "others; for a long download or preparation raise its `timeout`."
)
_BEFORE_HOROVOD = N_(
    "Look at what the script does before hvd.init: it must end on every rank, and about as soon as on the others; for "
    "a long preparation raise communication.rendezvous_timeout."
)
_RECORDED = N_(
    "Where torch wrote it down, each rank's last collectives are in nccl_trace_rank_* of the attempt's directory."
)
_NCCL_DEBUG = N_("Set NCCL_DEBUG=INFO under run.env and launch again to see on which link.")
_DRIVER = N_("Install a torch made for an older CUDA, or have the driver of that host updated.")
EXCHANGE = N_("Leave that host out and have the GPU looked at: nvidia-smi -q on the host, and `dmesg` for Xid lines.")
_BLOCKING = N_("Launch again with CUDA_LAUNCH_BLOCKING=1 under run.env: the traceback then shows the right line.")
_HANGING = N_("Find what the rank that did not come was doing: its last lines, its step, data that end earlier there.")
_NOT_SENT = N_(
    "A relative workdir is sent with the job, absolute paths are not: put the file there, or correct the path."
)

_T = r"[\w.:]+: "
"""The type of an exception."""
_WATCHDOG = r"(?:\[[^\]\n]*\] (?:Process group|NCCL) watchdog thread terminated with exception: )?"
_GAP = r"[^\n]{0,800}?"
"""Between two words of one line. Unbounded gaps, one after the other, would take minutes over a text made for that."""
_WIDE_GAP = r".{0,800}?"
"""The same over lines."""
_CUDA = rf"{_T}{_WATCHDOG}(?:CUDA error: |cuda runtime error \(\d+\) : )"
_GLOO_PEER = (
    r"(?:Connection closed by peer|Connection reset by peer|Broken pipe|Software caused connection abort"
    r"|Socket closed|Read error)"
)
_NCCL_PEER = (
    r"(?:ncclRemoteError|remote process exited or there was a network error|Connection closed by remote peer"
    r"|failed : (?:Connection reset by peer|Broken pipe|Software caused connection abort|Connection refused)"
    r"|Got completion from peer|NCCL communicator was aborted)"
)

RECOGNISERS: tuple[Recogniser, ...] = (
    # Memory of the GPU.
    Recogniser(
        "cuda-oom",
        N_("The memory of GPU {gpu} was full: {asked} more were asked for, and {free} of {total} were free."),
        (_SMALLER, _SHARED_GPU),
        rf"{_T}{_WATCHDOG}(?:CUDA|HIP) out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+)\.? "
        r"(?:GPU (?P<gpu>\d+) has a total capaci?ty of (?P<total>[\d.]+ \w+) of which (?P<free>[\d.]+ \w+) is free)",
    ),
    Recogniser(
        "cuda-oom",
        N_("The memory of GPU {gpu} was full: {asked} more were asked for, and {free} of {total} were free."),
        (_SMALLER, _SHARED_GPU),
        rf"{_T}(?:CUDA|HIP) out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+) "
        r"\(GPU (?P<gpu>\d+); (?P<total>[\d.]+ \w+) total capacity; [^\n]*?(?P<free>[\d.]+ \w+) free",
    ),
    Recogniser(
        "cuda-oom",
        N_("The memory of the GPU was full."),
        (_SMALLER, _SHARED_GPU),
        rf"{_T}{_WATCHDOG}(?:(?:CUDA|HIP) out of memory|CUDA error: (?:out of memory|CUBLAS_STATUS_ALLOC_FAILED)"
        rf"|RESOURCE_EXHAUSTED: |.*OOM when allocating tensor|NCCL error{_WIDE_GAP}Cuda failure{_GAP}out of memory"
        r"|cuDNN error: CUDNN_STATUS_ALLOC_FAILED)",
        rf"NCCL WARN Cuda failure{_GAP}'out of memory'",
    ),
    # Shared memory, before disks: its errors speak of a device that is full too.
    Recogniser(
        "shm-full",
        N_("/dev/shm of {host} was full: data loader workers and NCCL pass data through it."),  # noqa: S108 - a sentence
        (SHM,),
        rf"{_T}(?:DataLoader worker \(pid\S* \d+\) is killed by signal: Bus error"
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
        rf"{_T}.*DefaultCPUAllocator: (?:can't allocate memory|not enough memory): you tried to allocate "
        r"(?P<asked_bytes>\d+) bytes",
    ),
    Recogniser(
        "worker-killed",
        N_("A data loader worker of this rank was killed from outside (SIGKILL)."),
        (LESS_HOST_MEMORY, WHO_KILLS),
        rf"{_T}DataLoader worker \(pid\S* \d+\) is killed by signal: Killed",
    ),
    Recogniser(
        "memory-refused",
        N_("It asked {host} for memory, and was refused."),
        (LESS_HOST_MEMORY, MEMORY_LIMITS),
        r"(?:[\w.]*MemoryError(?::|$)|std::bad_alloc|[\w.]+: \[Errno 12\] Cannot allocate memory)",
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
        rf"{_T}.*\[Errno (?:28|122)\] (?:No space left on device|Disk quota exceeded): '(?P<path>[^']+)'",
    ),
    Recogniser(
        "disk-full",
        N_("There was no room left on a disk of {host}."),
        (FREE_DISK,),
        rf"{_T}(?:.*\[Errno 28\] No space left on device|.*\[Errno 122\] Disk quota exceeded"
        rf"|.*PytorchStreamWriter failed writing file{_GAP}file write failed)",
        r"^(?:\S+: )+(?:write error|cannot [^:]+|error writing [^:]+|[^:]*): No space left on device$",
    ),
    Recogniser(
        "too-many-files",
        N_("This rank had more files open than {host} lets it have."),
        (N_("Use fewer data loader workers, or raise the limit on that host (ulimit -n)."),),
        rf"{_T}(?:.*\[Errno 24\] Too many open files|received 0 items of ancdata)",
    ),
    # NCCL, before the general words for peers.
    Recogniser(
        "nccl-version",
        N_("NCCL differs between the hosts: rank {rank_a} has version {version_a}, rank {rank_b} {version_b}."),
        (_SAME_VERSIONS,),
        rf"{_T}.*Mismatched NCCL version detected : rank (?P<rank_a>\d+) version (?P<version_a>\d+) "
        r"rank (?P<rank_b>\d+) version (?P<version_b>\d+)",
        r"Mismatched NCCL version detected : rank (?P<rank_a>\d+) version (?P<version_a>\d+) "
        r"rank (?P<rank_b>\d+) version (?P<version_b>\d+)",
    ),
    Recogniser(
        "gpu-shared-by-ranks",
        N_("Ranks {rank_a} and {rank_b} used the same GPU; NCCL wants one each."),
        (N_("Let the script call torch.cuda.set_device(LOCAL_RANK) first of all, and keep CUDA_VISIBLE_DEVICES."),),
        rf"{_T}.*Duplicate GPU detected : rank (?P<rank_a>\d+) and rank (?P<rank_b>\d+) both on CUDA device",
    ),
    Recogniser(
        "collective-mismatch",
        N_("The ranks did not call the same collectives in the same order, or with tensors of the same shape."),
        (N_("Look for code that only some ranks run; TORCH_DISTRIBUTED_DEBUG=DETAIL under run.env names the calls."),),
        rf"{_T}.*(?:Detected mismatch between collectives on ranks|Mismatched collective detected"
        r"|Expected to have finished reduction in the prior iteration)",
        r"NCCL WARN Mismatched collective detected",
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited {seconds} s in a collective ({operation}) that some rank never came to."),
        (_HANGING, _RECORDED),
        rf"{_T}.*Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, OpType=(?P<operation>\w+)"
        rf"{_WIDE_GAP}ran for (?P<milliseconds>\d+) milliseconds",
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, OpType=(?P<operation>\w+)"
        rf"{_WIDE_GAP}ran for (?P<milliseconds>\d+) milliseconds",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("Ranks {ranks} did not come to a barrier in time."),
        (_HANGING,),
        rf"{_T}.*\[Rank \d+\]: Ranks (?P<ranks>[\d, ]+) failed to pass monitoredBarrier",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited {seconds} s for another rank's data, which never came."),
        (_HANGING,),
        rf"{_T}.*Timed out waiting (?P<milliseconds>\d+)ms for (?:recv|send) operation",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited in a collective that some rank never came to."),
        (_HANGING,),
        rf"{_T}.*(?:(?:timed out in|failed to pass) monitoredBarrier|Application timeout caused pair closure)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited {seconds} s in init_process_group for rank {missing}, which did not come there."),
        (LATE_RANK, _BEFORE_INIT, _NETWORK),
        rf"{_T}.*wait timeout after (?P<milliseconds>\d+)ms, keys: /\S*//\w+//\d+/(?P<missing>\d+)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited {seconds} s in NCCL's set-up for rank {missing}, which did not come there."),
        (LATE_RANK, _BEFORE_INIT, _NETWORK),
        rf"{_T}.*retrieving ncclUniqueId from \[(?P<missing>\d+)\]{_WIDE_GAP}timeout after (?P<milliseconds>\d+)ms",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("Only {joined} of {size} ranks came to init_process_group in time."),
        (_BEFORE_INIT, _NETWORK),
        rf"{_T}.*Timed out initializing process group in store based barrier{_GAP}"
        r"\(world_size=(?P<size>\d+), num_workers_joined=(?P<joined>\d+)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("Only {joined} of {size} ranks came to the rendezvous within {waited} s."),
        (_BEFORE_INIT, _NETWORK),
        rf"{_T}.*Timed out after (?P<waited>\d+) seconds waiting for clients\. (?P<joined>\d+)/(?P<size>\d+) clients",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It could not reach the master at {address}, port {port}."),
        (_NETWORK,),
        rf"{_T}.*The client socket has (?:timed out after \w+ while trying to connect to|failed to connect to any "
        r"network address of) \((?P<address>[^,]+), (?P<port>\d+)\)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited at the rendezvous for ranks that never came."),
        (_NETWORK,),
        r"(?:[\w.]*Rendezvous(?:Timeout|Connection)Error\b"
        rf"|{_T}(?:.*Gloo connectFullMesh failed with|.*wait timeout after \d+ms, keys: /?default_pg"
        r"|.*TCP client failed to connect/validate to host|.*barrier timeout after \d+ms))",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited {waited} s in hvd.init for rank {missing}, which did not come there."),
        (LATE_RANK, _BEFORE_HOROVOD, _NETWORK),
        printed=r"what\(\):.*Wait timeout after (?P<waited>\d+) seconds for key\(s\): \[?(?P<missing>\d+)",
        is_consequence=True,
    ),
    Recogniser(
        "peer-gone",
        N_("Horovod ended on another rank, by an exception or since the script came to its end there."),
        (_LOOK_AT_FIRST,),
        rf"[\w.]*HorovodInternalError: (?:Horovod has been shut down|.*{_GLOO_PEER})",
        is_consequence=True,
    ),
    Recogniser(
        "peer-gone",
        N_("It lost the connection to another rank, which had ended or could not be reached any more."),
        (_LOOK_AT_FIRST, _NETWORK),
        rf"{_T}(?:\[[^\]\n]*\.cc:\d+\] .*{_GLOO_PEER}|.*NCCL error{_WIDE_GAP}{_NCCL_PEER}|.*{_NCCL_PEER}"
        rf"|.*gloo{_WIDE_GAP}{_GLOO_PEER}|{_GLOO_PEER} \[[\d.:a-f]+\]"
        r"|.*Connection was likely closed\. Did the remote server shutdown or crash"
        r"|(?:recvValue|sendBytes|recvBytes|waitForInput)\w* failed on|.*failed to recv, got 0 bytes)",
        is_consequence=True,
    ),
    Recogniser(
        "peer-gone",
        N_("It lost the connection to the rendezvous store on the master, which had ended or could not be reached."),
        (_LOOK_AT_FIRST, _NETWORK),
        r"[\w.]*(?:DistNetworkError|DistStoreError): (?!.*EADDRINUSE)",
        is_consequence=True,
    ),
    # Ports.
    Recogniser(
        "port-in-use",
        N_("Port {port} of {host} was taken by another process."),
        (N_("Launch again: another port will be chosen. If the script itself chooses it, let it take MASTER_PORT."),),
        rf"{_T}.*(?:port: (?P<port>\d+), {_WIDE_GAP}EADDRINUSE)",
    ),
    Recogniser(
        "port-in-use",
        N_("A port that the script wanted on {host} was taken by another process."),
        (N_("Let the script take a free port (port 0), one of its own for each rank."),),
        rf"{_T}.*(?:EADDRINUSE|\[Errno 98\] {_GAP}address already in use|\[Errno 98\] Address already in use"
        rf"|bind\S{{0,80}} {_GAP}: Address already in use|Address already in use$)",
        r"(?:EADDRINUSE|[Aa]ddress already in use)$",
    ),
    Recogniser(
        "nccl-error",
        N_("NCCL failed: {last}"),
        (_NCCL_DEBUG, _NETWORK),
        rf"{_T}.*NCCL (?:error|failure){_WIDE_GAP}Last error:\s*(?P<last>[^\n]+)",
    ),
    Recogniser(
        "nccl-error",
        N_("NCCL failed."),
        (_NCCL_DEBUG, _NETWORK),
        r"[\w.:]*(?:DistBackendError|RuntimeError): .*?NCCL (?:error|failure|Error)",
    ),
    # What is installed.
    Recogniser(
        "shared-library",
        N_("The library {library} is missing on {host}."),
        (N_("Install the build of the package for that host's CUDA, or set LD_LIBRARY_PATH under run.env."),),
        r"(?:ImportError|OSError): (?P<library>[^\s:]+\.so[\d.]*): cannot open shared object file",
    ),
    Recogniser(
        "version-mismatch",
        N_("Packages on {host} do not go together: {what}"),
        (N_("Install versions of torch and of the packages built on it that were made for each other."),),
        r"(?:RuntimeError: (?P<what>Detected that PyTorch and \w+ were compiled with different CUDA[^\n.]*"
        r"|operator torchvision::\w+ does not exist)"
        r"|ImportError: (?P<what2>[^\n]*(?:undefined symbol: \w+|version `[\w.]+' not found[^\n]*"
        r"|cannot import name '\w+' from '[\w.]+')))",
    ),
    Recogniser(
        "missing-module",
        N_("{python} on {host} has no module {module}."),
        (_INSTALL,),
        r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)'?",
        r"^\S*python[\d.]*: No module named (?P<module>\S+)$",
    ),
    Recogniser(
        "import-error",
        N_("An import failed on {host}: {what}"),
        (_INSTALL,),
        r"ImportError: (?P<what>[^\n]+)",
    ),
    Recogniser(
        "interpreter-missing",
        N_("{host} has no program {program}."),
        (N_("Correct run.command or run.python, or `python` of the environment, or install the program there."),),
        None,
        r"^cannot start (?P<program>\S+): \[Errno 2\] No such file or directory: '(?P=program)'$"
        r"|^(?:/usr/bin/)?env: .?(?P<program2>[^\s'’]+?).?: No such file or directory$"
        r"|^(?:\S*sh)(?:: line \d+|: \d+)?: (?P<program3>\S+): (?:command )?not found$",
        frozenset({126, 127}),
    ),
    Recogniser(
        "workdir-missing",
        N_("{host} has no directory {path} to run in."),
        (_NOT_SENT,),
        None,
        r"^cannot start \S+: \[Errno (?:2|20)\] [^:]+: '(?P<path>[^']+)'$",
        frozenset({127}),
    ),
    Recogniser(
        "not-executable",
        N_("{program} cannot be run on {host}: {what}"),
        (N_("Make the file executable, or start it with its interpreter, such as [python3, train.py]."),),
        None,
        r"^cannot start (?P<program>\S+): \[Errno \d+\] (?P<what>Permission denied|Exec format error)"
        r"|^(?:\S*sh)(?:: line \d+|: \d+)?: (?P<program2>\S+): (?P<what2>Permission denied|cannot execute[^:]*)",
        frozenset({126, 127}),
    ),
    # Files.
    Recogniser(
        "permission",
        N_("The user on {host} may not open {path}."),
        (N_("Change the owner or mode of the file on that host, or use another path."),),
        r"(?:\w+\.)*(?:PermissionError|OSError): \[Errno (?:13|1)\] [^:]+: '(?P<path>[^']+)'",
    ),
    Recogniser(
        "read-only",
        N_("{path} on {host} is on a file system that is read-only."),
        (N_("Write elsewhere; a local disk that has become read-only wants its administrator."),),
        r"OSError: \[Errno 30\] Read-only file system: '(?P<path>[^']+)'",
    ),
    Recogniser(
        "missing-file",
        N_("{host} has no file {path}."),
        (_NOT_SENT,),
        r"(?:\w+\.)*(?:FileNotFoundError|OSError): \[Errno 2\] No such file or directory: b?'(?P<path>[^']+)'",
        r"can't open file '(?P<path>[^']+)': \[Errno 2\] No such file or directory$"
        r"|^(?:cat|ls|cp|head|tail|\S*sh(?:: line \d+|: \d+)?): (?:cannot (?:open|access) )?'?(?P<path2>/[^':]+)'?: "
        r"No such file",
    ),
    Recogniser(
        "storage-error",
        N_("Storage of {host} failed: {what}"),
        (N_("Look at the mounts and `dmesg` of that host: a network file system or a disk is in trouble."),),
        r"OSError: \[Errno (?:5|116|107)\] (?P<what>[^\n]+)",
    ),
    # Arguments and syntax.
    Recogniser(
        "arguments",
        N_("{program} did not accept its arguments: {what}"),
        (N_("Correct run.args; the script's own --help says what it takes."),),
        None,
        r"^(?P<program>[\w.\-/]+): error: (?P<what>.+)",
        frozenset({2}),
    ),
    Recogniser(
        "arguments",
        N_("The script did not accept its arguments: {what}"),
        (N_("Correct run.args; the script's own --help says what it takes."),),
        None,
        r"^Error: (?P<what>(?:No such option|Missing option|Missing argument|Invalid value|Got unexpected extra).*)",
        frozenset({2}),
    ),
    Recogniser(
        "syntax-error",
        N_("{python} cannot read the script: {what}"),
        (N_("Correct the line, or choose a Python new enough for it."),),
        r"(?:SyntaxError|IndentationError|TabError): (?P<what>[^\n]+)",
    ),
    # CUDA and its driver.
    Recogniser(
        "driver-too-old",
        N_("The NVIDIA driver of {host} is too old for the CUDA of this torch."),
        (_DRIVER,),
        rf"{_T}.*(?:The NVIDIA driver on your system is too old|CUDA driver version is insufficient for CUDA runtime"
        r"|forward compatibility was attempted on non supported HW)",
        r"UserWarning: CUDA initialization: The NVIDIA driver on your system is too old",
    ),
    Recogniser(
        "no-cuda-build",
        N_("The torch of {python} on {host} was made without CUDA."),
        (N_("Install a torch with CUDA there, or use the gloo backend and the CPU."),),
        r"(?:AssertionError: Torch not compiled with CUDA enabled"
        rf"|{_T}Distributed package doesn't have NCCL built in)",
    ),
    Recogniser(
        "no-gpu",
        N_("The script found no GPU on {host}."),
        (N_("See with `dttui envs` whether the driver works there; the script must not set CUDA_VISIBLE_DEVICES."),),
        rf"{_T}.*(?:No CUDA GPUs are available|no CUDA-capable device is detected|Found no NVIDIA driver on your system"
        r"|no GPUs found!)",
    ),
    Recogniser(
        "device-ordinal",
        N_("The script asked for a GPU that it was not given."),
        (N_("Count GPUs by LOCAL_RANK, not by RANK: each node's GPUs begin at 0."),),
        rf"(?:{_CUDA}invalid device ordinal|AssertionError: Invalid device id)",
    ),
    Recogniser(
        "gpu-busy",
        N_("A GPU of {host} was busy with another process, or lets only one use it."),
        (_SHARED_GPU,),
        rf"{_CUDA}(?:all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy)",
    ),
    Recogniser(
        "fabric-manager",
        N_("The NVSwitch fabric of {host} is not ready."),
        (N_("Have nvidia-fabricmanager started on that host, in the version of its driver."),),
        rf"{_T}.*(?:Error 802: )?system not yet initialized",
    ),
    Recogniser(
        "gpu-unsupported",
        N_("This torch has no code for the kind of GPU in {host}."),
        (N_("Install a torch made for that GPU's compute capability."),),
        rf"{_CUDA}no kernel image is available for execution on the device",
    ),
    Recogniser(
        "gpu-ecc",
        N_("The memory of a GPU of {host} is damaged: an ECC error that could not be corrected."),
        (EXCHANGE,),
        rf"{_T}.*(?:uncorrectable ECC error encountered|uncorrectable NVLink error|hardware stack error)",
    ),
    Recogniser(
        "gpu-lost",
        N_("A GPU of {host} fell off the bus."),
        (EXCHANGE,),
        rf"{_T}.*(?:GPU is lost|GPU has fallen off the bus)",
        rf"GPU has fallen off the bus|Unable to determine the device handle for GPU{_GAP}GPU is lost",
    ),
    Recogniser(
        "device-assert",
        N_("A check in a GPU kernel failed: most often an index out of range, such as a label or token id too large."),
        (_BLOCKING,),
        rf"{_CUDA}device-side assert triggered",
    ),
    Recogniser(
        "cuda-fault",
        N_("A GPU kernel failed: {what}"),
        (_BLOCKING, EXCHANGE),
        rf"{_CUDA}(?P<what>an illegal memory access was encountered|unspecified launch failure|misaligned address"
        r"|an illegal instruction was encountered|the launch timed out and was terminated)",
    ),
    Recogniser("cuda-error", N_("CUDA failed: {what}"), (_BLOCKING,), rf"{_CUDA}(?P<what>[^\n]+)"),
    # Numbers.
    Recogniser(
        "not-finite",
        N_("The numbers ran away: {what}"),
        (
            N_("Use a lower learning rate, gradient clipping or bf16; look at the data of the last step."),
            N_("torch.autograd.set_detect_anomaly(True) names the operation."),
        ),
        r"(?:FloatingPointError: (?P<what>[^\n]+)"
        r"|[\w.:]+: (?P<what2>[^\n]*returned nan values in its[^\n]*"
        r"|Current loss scale already at minimum[^\n]*"
        rf"|[^\n]*\b(?:[Ll]oss(?:es)?|[Gg]rad\w*|norm|logits|activations?|LOSS)\b{_GAP}"
        r"(?:\b(?:nan|NaN|NAN|inf|Inf)\b|not finite|non-?finite|infinite)[^\n]*"
        rf"|[^\n]*(?:\b(?:nan|NaN|NAN)\b|[Nn]on-?finite|not finite){_GAP}\b(?:loss|grad\w*|norm|logits)\b[^\n]*))",
    ),
    # Checkpoints.
    Recogniser(
        "checkpoint-format",
        N_("torch refused to load a checkpoint that holds more than tensors (since 2.6 it does so by default)."),
        (N_("Only if you trust the file: torch.load(…, weights_only=False)."),),
        r"[\w.]*UnpicklingError: Weights only load failed",
    ),
    Recogniser(
        "checkpoint-corrupt",
        N_("A checkpoint or data file cannot be read: {what}"),
        (N_("It was probably cut short in writing: go back to the one before, and rename files once they are whole."),),
        r"(?:RuntimeError: (?P<what>PytorchStreamReader failed[^\n]*|unexpected EOF, expected \d+ more bytes[^\n]*"
        r"|Invalid magic number; corrupt file\?)"
        r"|[\w.]*UnpicklingError: (?P<what2>invalid load key[^\n]*|pickle data was truncated[^\n]*)"
        r"|EOFError: (?P<what3>Ran out of input)"
        r"|[\w.]*(?:SafetensorError|BadZipFile|BadGzipFile): (?P<what4>[^\n]+)|zlib\.error: (?P<what5>[^\n]+))",
    ),
    Recogniser(
        "checkpoint-mismatch",
        N_("The checkpoint is of another model than {model} as it is now."),
        (N_("Give the options that the checkpoint was made with, or start without it."),),
        r"RuntimeError: Error\(s\) in loading state_dict for (?P<model>\w+)",
    ),
    # Other services.
    Recogniser(
        "not-authorised",
        N_("A service refused the script: {what}"),
        (N_("Name the token under run.secrets, and check that it may read what is asked for."),),
        r"[\w.]*(?:GatedRepoError|HTTPError|HfHubHTTPError|RepositoryNotFoundError): (?P<what>40[13] [^\n]*)",
    ),
    Recogniser(
        "service-unreachable",
        N_("{host} could not reach a service that the script wants: {what}"),
        (N_("Hosts often cannot reach the internet: put data and models on them, or set a proxy under run.env."),),
        r"[\w.]*(?:requests\.exceptions\.\w+|MaxRetryError|NewConnectionError|URLError|ConnectError|ConnectTimeout"
        r"|LocalEntryNotFoundError|OfflineModeIsEnabled|ConnectionRefusedError|gaierror|ClientConnectorError)"
        r": (?P<what>[^\n]+)"
        r"|OSError: (?P<what2>We couldn't connect to '[^']+')",
    ),
    Recogniser(
        "interrupted",
        N_("It was interrupted (KeyboardInterrupt, SIGINT)."),
        (N_("Nothing is wrong with it: launch again when you want it."),),
        r"KeyboardInterrupt(?::|$)",
    ),
)
