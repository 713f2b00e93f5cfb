"""CUDA, its driver and the GPUs themselves."""

from __future__ import annotations

from dttui.diagnosis.advice import ASK_FIRST, BLOCKING, DRIVER, EXCHANGE, SHARED_GPU
from dttui.diagnosis.recogniser import Recogniser
from dttui.diagnosis.rows.patterns import CUDA, GAP, RAISED
from dttui.i18n import N_

ROWS: tuple[Recogniser, ...] = (
    # CUDA and its driver.
    Recogniser(
        "driver-too-old",
        N_("The NVIDIA driver of {host} is too old for the CUDA of this torch."),
        (DRIVER,),
        rf"{RAISED}.*(?:The NVIDIA driver on your system is too old"
        r"|CUDA driver version is insufficient for CUDA runtime"
        r"|forward compatibility was attempted on non supported HW)",
        r"UserWarning: CUDA initialization: The NVIDIA driver on your system is too old",
    ),
    Recogniser(
        "no-cuda-build",
        N_("The torch of {python} on {host} was made without CUDA."),
        (N_("Install a torch with CUDA there, or use the gloo backend and the CPU."), ASK_FIRST),
        r"(?:AssertionError: Torch not compiled with CUDA enabled"
        r"|AttributeError: module 'torch\._C' has no attribute '_cuda_\w+'"
        r"|RuntimeError: torch\.cuda\.\w+ requires CUDA support"
        r"|RuntimeError: Tried to instantiate dummy base class (?:Event|Stream|CUDAGraph|_Cuda\w+)"
        r"|ValueError: device_id cuda:\d+ does not match the current compilation's accelerator support: None"
        rf"|{RAISED}Distributed package doesn't have NCCL built in)",
    ),
    Recogniser(
        "checkpoint-device",
        N_("A file that was saved from a GPU was loaded on {host}, where the script has none."),
        (N_("Say where it is to be loaded: torch.load(…, map_location='cpu'), or the rank's own device."),),
        rf"{RAISED}Attempting to deserialize object on a \w+ device but torch\.\w+\.is_available\(\) is False",
    ),
    Recogniser(
        "checkpoint-device",
        N_("A file that was saved from GPU {gpu} was loaded on {host}, where the rank has only {count}."),
        (N_("Say where it is to be loaded: torch.load(…, map_location='cpu'), or the rank's own device."),),
        rf"{RAISED}Attempting to deserialize object on \w+ device (?P<gpu>\d+) but torch\.\w+\.device_count\(\) is "
        r"(?P<count>\d+)",
    ),
    Recogniser(
        "device-ids",
        N_("DistributedDataParallel was given device_ids for a model that is on the CPU."),
        (N_("Leave device_ids out there, or move the model to its GPU first: model.to(LOCAL_RANK)."),),
        rf"{RAISED}DistributedDataParallel device_ids and output_device arguments only work with[^\n]*"
        r"device\(type='cpu'\)",
    ),
    Recogniser(
        "no-gpu",
        N_("The script found no GPU on {host}."),
        (
            N_("See with `dttui envs` whether the driver works there; the script must not set CUDA_VISIBLE_DEVICES."),
            ASK_FIRST,
        ),
        rf"{RAISED}.*(?:No (?:CUDA|HIP) GPUs are available|no CUDA-capable device is detected"
        r"|Found no NVIDIA driver on your system|Cannot access accelerator device when none is available"
        r"|no GPUs found!)",
    ),
    Recogniser(
        "device-ordinal",
        N_("The script asked for a GPU that it was not given."),
        (N_("Count GPUs by LOCAL_RANK, not by RANK: each node's GPUs begin at 0."),),
        rf"(?:{CUDA}invalid device ordinal|AssertionError: Invalid device id)",
    ),
    Recogniser(
        "gpu-busy",
        N_("A GPU of {host} was busy with another process, or lets only one use it."),
        (SHARED_GPU,),
        rf"{CUDA}(?:all CUDA-capable devices are busy or unavailable|CUDA-capable device\(s\) is/are busy)",
    ),
    Recogniser(
        "fabric-manager",
        N_("The NVSwitch fabric of {host} is not ready."),
        (N_("Have nvidia-fabricmanager started on that host, in the version of its driver."),),
        rf"{RAISED}.*(?:Error 802: )?system not yet initialized",
    ),
    Recogniser(
        "gpu-unsupported",
        N_("This torch has no code for the kind of GPU in {host}."),
        (N_("Install a torch made for that GPU's compute capability."),),
        rf"{CUDA}no kernel image is available for execution on the device",
    ),
    Recogniser(
        "gpu-ecc",
        N_("The memory of a GPU of {host} is damaged: an ECC error that could not be corrected."),
        (EXCHANGE,),
        rf"{RAISED}.*(?:uncorrectable ECC error encountered|uncorrectable NVLink error|hardware stack error)",
    ),
    Recogniser(
        "gpu-lost",
        N_("A GPU of {host} fell off the bus."),
        (EXCHANGE,),
        rf"{RAISED}.*(?:GPU is lost|GPU has fallen off the bus)",
        rf"GPU has fallen off the bus|Unable to determine the device handle for GPU{GAP}GPU is lost",
    ),
    Recogniser(
        "device-assert",
        N_("A check in a GPU kernel failed: most often an index out of range, such as a label or token id too large."),
        (BLOCKING,),
        rf"{CUDA}device-side assert triggered",
    ),
    Recogniser(
        "cuda-fault",
        N_("A GPU kernel failed: {what}"),
        (BLOCKING, EXCHANGE),
        rf"{CUDA}(?P<what>an illegal memory access was encountered|unspecified launch failure|misaligned address"
        r"|an illegal instruction was encountered|the launch timed out and was terminated)",
    ),
    Recogniser("cuda-error", N_("CUDA failed: {what}"), (BLOCKING,), rf"{CUDA}(?P<what>[^\n]+)"),
)
