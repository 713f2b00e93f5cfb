"""What libraries raise where something fails, each with the code of its cause and some of the words it is told in.

The texts are those of CPython, torch 2.x, NCCL, gloo, numpy and others, as sources print them or people report them.
"""

from __future__ import annotations

RAISED = [
    (
        "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an exception "
        "on one of the ranks or an attempt to allreduce, allgather or broadcast a tensor after one of the ranks "
        "finished execution.",
        "peer-gone",
        "Horovod was shut down",
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 "
        "GiB of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of "
        "the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated.",
        "cuda-oom",
        "The memory of GPU 0 was full: 24.46 GB more were asked for, and 13.67 GB of 33.79 GB were free.",
    ),
    (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of "
        "6.00 GiB of which 0 bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch",
        "cuda-oom",
        "0 bytes of 6.44 GB were free",
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 264.00 MiB (GPU 0; 2.00 GiB total capacity; 788.51 MiB "
        "already allocated; 145.93 MiB free; 1.02 GiB reserved in total by PyTorch)",
        "cuda-oom",
        "277 MB more were asked for, and 153 MB of 2.15 GB were free",
    ),
    ("torch.AcceleratorError: CUDA error: out of memory\nCUDA kernel errors might be", "cuda-oom", "full"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "cuda-oom", "full"),
    ("MemoryError", "memory-refused", "It asked gpu2 for memory, and was refused."),
    (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape "
        "(1000000000000,) and data type float64",
        "memory-refused",
        "asked gpu2 for 8,004.44 GB of memory",
    ),
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 70368744177664 bytes. Error code 12 (Cannot allocate memory)",
        "memory-refused",
        "asked gpu2 for 70,368.74 GB of memory",
    ),
    ("OSError: [Errno 12] Cannot allocate memory", "memory-refused", "gpu2"),
    ("std::bad_alloc: std::bad_alloc", "memory-refused", "gpu2"),
    (
        "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Killed. ",
        "worker-killed",
        "data loader worker",
    ),
    (
        "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.",
        "shm-full",
        "/dev/shm of gpu2",
    ),
    (
        "RuntimeError: unable to write to file </torch_123_456_7>: No space left on device (28)",
        "shm-full",
        "/dev/shm of gpu2",
    ),
    ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", "shm-full", "/dev/shm"),
    ("OSError: [Errno 28] No space left on device: '/ckpt/3.pt'", "disk-full", "gpu2 to write /ckpt/3.pt"),
    ("OSError: [Errno 28] No space left on device", "disk-full", "a disk of gpu2"),
    ("OSError: [Errno 122] Disk quota exceeded", "disk-full", "a disk of gpu2"),
    (
        "RuntimeError: [enforce fail at inline_container.cc:668] . PytorchStreamWriter failed writing file data/0: "
        "file write failed",
        "disk-full",
        "a disk of gpu2",
    ),
    ("OSError: [Errno 24] Too many open files", "too-many-files", "gpu2"),
    ("RuntimeError: received 0 items of ancdata", "too-many-files", "gpu2"),
    (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid "
        "usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5\nncclInvalidUsage: This usually reflects "
        "invalid usage of NCCL library.\nLast error:\n"
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",
        "gpu-shared-by-ranks",
        "Ranks 1 and 0",
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, invalid usage, NCCL version 2.21.5\nLast "
        "error:\nMismatched NCCL version detected : rank 1 version 21805 rank 0 version 21403",
        "nccl-version",
        "rank 1 has version 21805, rank 0 21403",
    ),
    (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER), but Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=0OpType=GATHER).Collectives differ in the following aspects: \t Op type: "
        "BARRIERvs GATHER",
        "collective-mismatch",
        "Rank 1 called another collective (BARRIER) than rank 0 (GATHER)",
    ),
    (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))), but Rank 1 is "
        "running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, TensorShape=[8], "
        "TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
        "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))).Collectives differ in "
        "the following aspects: \t Tensor Tensor shapes: 4vs 8",
        "collective-mismatch",
        "Rank 0 called another collective (ALLREDUCE, TensorShape=[4]) than rank 1 (ALLREDUCE, TensorShape=[8])",
    ),
    ("RuntimeError: Detected mismatch between collectives on ranks.", "collective-mismatch", "same collectives"),
    (
        "gloo::EnforceNotMet: [enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] "
        "op.preamble.length <= op.nbytes. 8 vs 4. Received data size doesn't match expected size. Is there a "
        "distributed collective mismatch in your code?",
        "collective-mismatch",
        "A collective was brought 8 bytes by another rank where 4 were expected",
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, invalid "
        "usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5\nncclInvalidUsage: This usually reflects "
        "invalid usage of NCCL library.\nLast error:\nNET/Socket : peer 10.0.0.2<41234> message truncated : receiving "
        "262144 bytes instead of 65536. If you believe your socket network is in a healthy state, there may be a "
        "mismatch in collective sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks",
        "collective-mismatch",
        "262144 bytes by another rank where 65536 were expected",
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, invalid usage, NCCL version 2.26.2\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nNET/IB : req 0/1 tag 1c "
        "peer 10.0.0.2<47654> collective mismatch error, local size 524288 remote size 131072",
        "collective-mismatch",
        "524288 bytes by another rank where 131072 were expected",
    ),
    (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This "
        "error indicates that your module has parameters that were not used in producing loss.",
        "unused-parameters",
        "had no part in the loss, and DDP waited for their gradients.",
    ),
    (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This "
        "error indicates that your module has parameters that were not used in producing loss.\nParameters which did "
        "not receive grad for rank 1: b.bias, b.weight\nParameter indices which did not receive grad for rank 1: 2 3",
        "unused-parameters",
        "DDP waited for their gradients: b.bias, b.weight.",
    ),
    (
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has inconsistent "
        "4 params.",
        "model-differs",
        "rank 0 has 2 parameters, rank 1 4",
    ),
    (
        "RuntimeError: [1]: params[0] in this process with sizes [8, 4] appears not to match sizes of the same param "
        "in process 0.",
        "model-differs",
        "parameter 0 of rank 1 has the shape [8, 4] there",
    ),
    (
        "c10::DistBackendError: [PG 1 Rank 7] Process group watchdog thread terminated with exception: [Rank 7] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=199, OpType=_REDUCE_SCATTER_BASE, "
        "NumelIn=7098994688, NumelOut=443687168, Timeout(ms)=600000) ran for 882725 milliseconds before timing out.",
        "collective-timeout",
        "It waited 883 s in a collective (_REDUCE_SCATTER_BASE)",
    ),
    (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for "
        "recv operation to complete",
        "collective-timeout",
        "1800 s",
    ),
    (
        "dtagent.payload.collectives.errors.CollectiveTimeoutError: all_reduce timed out after 120 s: rank 1 did not "
        "call\nmissing: rank 1",
        "collective-timeout",
        "It waited 120 s in a collective (all_reduce)",
    ),
    (
        "dtagent.payload.collectives.errors.CollectiveTimeoutError: broadcast was broken off: ranks 1, 3 ended",
        "peer-gone",
        "lost the connection",
    ),
    (
        "RuntimeError: [Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 5000 ms",
        "collective-timeout",
        "Ranks 1, 2 did not",
    ),
    (
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
        "rendezvous-timeout",
        "Only 1 of 2 ranks came to the rendezvous within 901 s.",
    ),
    (
        "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to "
        "(10.0.0.1, 29500).",
        "rendezvous-timeout",
        "the master at 10.0.0.1, port 29500",
    ),
    (
        "torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /default_pg/0//cpu//0/3",
        "rendezvous-timeout",
        "It waited 1800 s in init_process_group for rank 3, which did not come there.",
    ),
    (
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: "
        "/default_pg/0//cuda//0",
        "rendezvous-timeout",
        "It waited 600 s in NCCL's set-up for rank 0, which did not come there.",
    ),
    (
        "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank: 1, for "
        "key: store_based_barrier_key:1 (world_size=4, num_workers_joined=2, timeout=0:30:00 error=wait timeout)",
        "rendezvous-timeout",
        "Only 2 of 4 ranks came to init_process_group in time.",
    ),
    (
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "rendezvous-timeout",
        "ranks that never came",
    ),
    (
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        "rendezvous-timeout",
        "never came",
    ),
    (
        "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by "
        "peer [127.0.0.1]:9122. This is typically caused by a remote worker crashing.",
        "peer-gone",
        "lost the connection",
    ),
    (
        "RuntimeError: [/x/gloo/transport/tcp/pair.cc:534] Read error [10.0.0.1]:4: Connection reset by peer",
        "peer-gone",
        "lost the connection",
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, "
        "remote process exited or there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgressOpt: "
        "Call to "
        "recv from 172.0.0.1<33759> failed : Connection reset by peer",
        "peer-gone",
        "lost the connection",
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, internal error, NCCL version "
        "2.14.3\nncclInternalError: Internal check failed.\nLast error:\n"
        "Net : Connection closed by remote peer user<50260>",
        "peer-gone",
        "lost the connection",
    ),
    (
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
        "server shutdown or crash?",
        "peer-gone",
        "lost the connection",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "port-in-use",
        "Port 29500 of gpu2",
    ),
    ("OSError: [Errno 98] Address already in use", "port-in-use", "gpu2"),
    (
        "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8080): address already in use",
        "port-in-use",
        "gpu2",
    ),
    (
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, unhandled system error (run "
        "with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\nncclSystemError: System call (e.g. socket, malloc) or "
        "external library call failed or device error. \nLast error:\nBootstrap : no socket interface found",
        "nccl-error",
        "NCCL failed: Bootstrap : no socket interface found",
    ),
    (
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "shared-library",
        "libcudart.so.12 is missing on gpu2",
    ),
    (
        "ImportError: cannot import name 'container_abcs' from 'torch._six' (/x/site-packages/torch/_six.py)",
        "version-mismatch",
        "container_abcs",
    ),
    (
        "ImportError: /x/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        "version-mismatch",
        "undefined symbol",
    ),
    ("RuntimeError: operator torchvision::nms does not exist", "version-mismatch", "torchvision"),
    (
        "ModuleNotFoundError: No module named 'deepspeed'",
        "missing-module",
        "/opt/conda/bin/python on gpu2 has no module deepspeed.",
    ),
    (
        "ImportError: cannot import name 'dump_all' from 'json' (/usr/lib/python3.11/json/__init__.py)",
        "import-error",
        "cannot import name 'dump_all' from 'json'",
    ),
    (
        "ImportError: cannot import name 'build' from 'models' (/w/models/__init__.py)",
        "import-error",
        "/w/models/__init__.py on gpu2 has no build that could be imported.",
    ),
    ("ImportError: Using `low_cpu_mem_usage=True` requires Accelerate", "import-error", "requires Accelerate"),
    ("PermissionError: [Errno 13] Permission denied: '/data/x'", "permission", "/data/x"),
    ("OSError: [Errno 30] Read-only file system: '/ckpt'", "read-only", "/ckpt on gpu2"),
    (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet'",
        "missing-file",
        "gpu2 has no file /data/imagenet.",
    ),
    ("OSError: [Errno 116] Stale file handle", "storage-error", "Stale file handle"),
    ("SyntaxError: '(' was never closed (file train.py, line 1)", "syntax-error", "line 1"),
    (
        "SyntaxError: 'epoch' is not a valid YOLO argument. Similar arguments are i.e. ['epochs=100', 'depth'].",
        "arguments",
        "did not accept its arguments: 'epoch' is not",
    ),
    (
        "ValueError: Some keys are not used by the HfArgumentParser: ['learning_rat']",
        "arguments",
        "['learning_rat']",
    ),
    ("ValueError: remaining_argv: ['--learning_rxte', '1e-3']", "arguments", "'--learning_rxte'"),
    (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update",
        "driver-too-old",
        "gpu2",
    ),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 804: forward compatibility was attempted on non "
        "supported HW",
        "driver-too-old",
        "gpu2",
    ),
    *[
        (text, "no-cuda-build", "on gpu2 was made without CUDA")
        for text in (
            "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
            "AttributeError: module 'torch._C' has no attribute '_cuda_resetPeakMemoryStats'",
            "RuntimeError: torch.cuda.Stream requires CUDA support",
            "RuntimeError: Tried to instantiate dummy base class Event",
            "ValueError: device_id cuda:0 does not match the current compilation's accelerator support: None. Please "
            "use a different compiled version that supports your accelerator.",
        )
    ],
    ("RuntimeError: Cannot access accelerator device when none is available.", "no-gpu", "no GPU on gpu2"),
    ("RuntimeError: No HIP GPUs are available", "no-gpu", "no GPU on gpu2"),
    (
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If "
        "you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map "
        "your storages to the CPU.",
        "checkpoint-device",
        "loaded on gpu2, where the script has none",
    ),
    (
        "RuntimeError: Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 2. Please "
        "use torch.load with map_location to map your storages to an existing device.",
        "checkpoint-device",
        "saved from GPU 3 was loaded on gpu2, where the rank has only 2",
    ),
    (
        "ValueError: DistributedDataParallel device_ids and output_device arguments only work with "
        "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device None, and "
        "module parameters {device(type='cpu')}.",
        "device-ids",
        "for a model that is on the CPU",
    ),
    (
        "AttributeError: partially initialized module 'torch' has no attribute 'ones' (most likely due to a circular "
        "import)",
        "module-shadowed",
        "Module torch was used before it was loaded",
    ),
    (
        "ImportError: cannot import name 'nn' from partially initialized module 'torch' (most likely due to a circular "
        "import) (/w/torch.py)",
        "module-shadowed",
        "Module torch was used before it was loaded",
    ),
    (
        "AttributeError: module 'random' has no attribute 'seed' (consider renaming '/w/random.py' since it has the "
        "same name as the standard library module named 'random' and prevents importing that standard library module)",
        "module-shadowed",
        "Module random was used",
    ),
    ("AssertionError: Torch not compiled with CUDA enabled", "no-cuda-build", "made without CUDA"),
    ("RuntimeError: Distributed package doesn't have NCCL built in", "no-cuda-build", "made without CUDA"),
    ("RuntimeError: No CUDA GPUs are available", "no-gpu", "gpu2"),
    ("ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "no-gpu", "gpu2"),
    ("RuntimeError: CUDA error: invalid device ordinal\nCUDA kernel errors", "device-ordinal", "not given"),
    ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "gpu-busy", "gpu2"),
    (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "gpu-unsupported",
        "gpu2",
    ),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors", "gpu-ecc", "damaged"),
    (
        "c10::Error: [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error "
        "encountered",
        "gpu-ecc",
        "damaged",
    ),
    ("RuntimeError: CUDA error: device-side assert triggered\nCUDA kernel", "device-assert", "index out of range"),
    (
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "cuda-fault",
        "an illegal memory access",
    ),
    ("RuntimeError: CUDA error: unknown error", "cuda-error", "unknown error"),
    ("ValueError: Loss is nan, stopping training", "not-finite", "Loss is nan"),
    ("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "not-finite", "MulBackward0"),
    (
        "RuntimeError: Rank 0, node gpu1, device 0, iteration 5: Unexpected result nan (message='found NaN in local "
        "forward loss calculation')",
        "not-finite",
        "found NaN",
    ),
    (
        "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be",
        "not-finite",
        "non-finite",
    ),
    (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "not-finite",
        "loss scale",
    ),
    (
        "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded, to do so",
        "checkpoint-format",
        "more than tensors",
    ),
    ("_pickle.UnpicklingError: invalid load key, '\\x00'.", "checkpoint-corrupt", "invalid load key"),
    (
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "checkpoint-corrupt",
        "central directory",
    ),
    ("EOFError: Ran out of input", "checkpoint-corrupt", "Ran out of input"),
    (
        "safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeaderDeserialization",
        "checkpoint-corrupt",
        "header",
    ),
    (
        'RuntimeError: Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "weight", "bias".',
        "checkpoint-mismatch",
        "Linear",
    ),
    (
        "requests.exceptions.ConnectionError: (MaxRetryError: host='huggingface.co', port=443)",
        "service-unreachable",
        "huggingface.co",
    ),
    ("ConnectionRefusedError: [Errno 111] Connection refused", "service-unreachable", "Connection refused"),
    ("KeyboardInterrupt", "interrupted", "interrupted"),
]
