"""Ways to break a training script: what each does, and what has to be told of it.

`LIGHT` needs the standard library alone, `TORCH` one process with torch, `TOGETHER` two ranks that torchrun starts.
Those of the first two are the script of one rank each, so that many fail in one job.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Broken:
    """A script that fails."""

    name: str
    text: str
    cause: str
    """Code of the cause; several where it is nobody's choice which of them is found."""
    told: str
    """In the cause's words."""


LIGHT = (
    Broken("a parenthesis is missing", "def train(:\n    pass\n", "syntax-error", "0.py"),
    Broken("a line is indented otherwise", "if True:\n    a = 1\n  b = 2\n", "syntax-error", "unindent"),
    Broken("a package is missing", "import flash_attn_of_nobody\n", "missing-module", "flash_attn_of_nobody"),
    Broken("a name is not in a package", "from json import dump_all\n", "import-error", "dump_all"),
    Broken(
        "an option that the script has not",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n"
        "parser.parse_args(['--learning-rate', '1'])\n",
        "arguments",
        "--learning-rate",
    ),
    Broken("a data file is missing", "open('/data/none/train.bin', 'rb')\n", "missing-file", "/data/none/train.bin"),
    Broken(
        "a directory of somebody else",
        "import os\nos.geteuid() or os.seteuid(65534)\nopen('/root/model.pt', 'wb')\n",
        "permission",
        "/root/model.pt",
    ),
    Broken(
        "a disk is full", "with open('/dev/full', 'wb') as stream:\n    stream.write(bytes(99))\n", "disk-full", "room"
    ),
    Broken(
        "a port is taken",
        "import socket\nfirst = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_server(('127.0.0.1', first.getsockname()[1]))\n",
        "port-in-use",
        "port",
    ),
    Broken(
        "a configuration is empty",
        "import json\njson.loads('')\n",
        "exception",
        "raised JSONDecodeError in 9.py, line 2: Expecting value",
    ),
    Broken(
        "a setting is missing",
        "config = {'lr': 1}\nconfig['batch_size']\n",
        "exception",
        "raised KeyError in 10.py, line 2: 'batch_size'",
    ),
    Broken(
        "an assertion",
        "assert 8 % 3 == 0, 'heads must divide'\n",
        "exception",
        "raised AssertionError in 11.py, line 1: heads must divide",
    ),
    Broken("no steps at all", "steps = 0\n1 / steps\n", "exception", "in 12.py, line 2: division by zero"),
    Broken(
        "it ends with a code of its own",
        "import sys\nprint('giving up', flush=True)\nsys.exit(3)\n",
        "exit-code",
        "exit code 3",
    ),
    Broken("a crash in compiled code", "import ctypes\nctypes.string_at(0)\n", "segfault", "crashed"),
    Broken("an abort", "import os\nos.abort()\n", "aborted", "gave up in compiled code"),
    Broken("endless recursion", "def f():\n    f()\nf()\n", "exception", "function f: maximum recursion depth"),
    Broken("more memory than there is", "bytearray(1 << 60)\n", "memory-limit memory-refused", "was refused"),
    Broken(
        "files that are never closed",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        "kept = [open('/dev/null') for _ in range(99)]\n",
        "too-many-files",
        "open",
    ),
    Broken("a signal from itself", "import os\nos.kill(os.getpid(), 9)\n", "killed", "killed"),
    Broken("text in another encoding", "b'\\xff\\xfe'.decode()\n", "exception", "line 1: 'utf-8' codec"),
    Broken(
        "a hub that is not there",
        "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/model')\n",
        "service-unreachable",
        "Connection refused",
    ),
)
TORCH = (
    Broken(
        "shapes that do not go together",
        "torch.nn.Linear(4, 4)(torch.ones(2, 5))\n",
        "exception",
        "mat1 and mat2 shapes",
    ),
    Broken("numbers of two kinds", "torch.nn.Linear(4, 4)(torch.ones(2, 4).long())\n", "exception", "same dtype"),
    Broken(
        "a token beyond the vocabulary",
        "torch.nn.Embedding(5, 2)(torch.tensor([9]))\n",
        "exception",
        "index out of range",
    ),
    Broken(
        "a class beyond the last",
        "torch.nn.functional.cross_entropy(torch.ones(1, 3), torch.tensor([7]))\n",
        "exception",
        "Target 7 is out of bounds",
    ),
    Broken("CUDA without a GPU", "torch.ones(1).cuda()\n", "no-cuda-build", "CUDA"),
    Broken(
        "a checkpoint of another model",
        "torch.nn.Linear(4, 4).load_state_dict(torch.nn.Linear(3, 3).state_dict())\n",
        "checkpoint-mismatch",
        "checkpoint",
    ),
    Broken(
        "a checkpoint that was cut",
        "torch.save({'w': torch.ones(999)}, PATH)\nopen(PATH, 'r+b').truncate(1000)\ntorch.load(PATH)\n",
        "checkpoint-corrupt",
        "cannot be read",
    ),
    Broken(
        "a checkpoint with a class in it",
        "import argparse\ntorch.save({'args': argparse.Namespace(lr=1)}, PATH)\ntorch.load(PATH)\n",
        "checkpoint-format",
        "holds more than tensors",
    ),
    Broken(
        "backward twice",
        "loss = (torch.ones(2, requires_grad=True) ** 2).sum()\nloss.backward()\nloss.backward()\n",
        "exception",
        "backward through the graph a second time",
    ),
    Broken(
        "a value that is changed in place",
        "x = torch.ones(2, requires_grad=True)\ny = x.exp()\ny.add_(1)\ny.sum().backward()\n",
        "exception",
        "modified by an inplace operation",
    ),
    Broken(
        "a sample that cannot be read, in a worker",
        "class Data(torch.utils.data.Dataset):\n    def __len__(self): return 4\n"
        "    def __getitem__(self, index): return {}['image']\n"
        "list(torch.utils.data.DataLoader(Data(), num_workers=1))\n",
        "exception",
        "function __getitem__: 'image'",
    ),
    Broken(
        "a worker that is killed",
        "import os\nclass Data(torch.utils.data.Dataset):\n    def __len__(self): return 4\n"
        "    def __getitem__(self, index): os.kill(os.getpid(), 9)\n"
        "list(torch.utils.data.DataLoader(Data(), num_workers=1))\n",
        "worker-killed",
        "worker",
    ),
    Broken(
        "a loss that is no number",
        "loss = torch.tensor(float('inf')) - torch.tensor(float('inf'))\n"
        "if not torch.isfinite(loss): raise ValueError(f'Loss is {loss.item()}, stopping training')\n",
        "not-finite",
        "nan",
    ),
)
_DDP = """
import datetime, os, signal, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Each is to fail by itself.
limit = datetime.timedelta(seconds=5)
"""
TOGETHER = (
    Broken(
        "one rank leaves a collective out",
        _DDP + "dist.init_process_group('gloo', timeout=limit)\nif dist.get_rank(): dist.barrier()\n"
        "else: dist.all_reduce(torch.ones(2))\ndist.all_reduce(torch.ones(2))\n",
        "collective-timeout peer-gone collective-mismatch",
        "",
    ),
    Broken(
        "NCCL without a GPU",
        _DDP + "dist.init_process_group('nccl')\ndist.all_reduce(torch.ones(2))\n",
        "no-gpu no-cuda-build",
        "",
    ),
    Broken(
        "parameters that no loss needs",
        _DDP + "dist.init_process_group('gloo', timeout=limit)\n"
        "class Two(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.used, self.unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)\n"
        "    def forward(self, x): return self.used(x)\n"
        "model = DistributedDataParallel(Two())\n"
        "for _ in range(2): model(torch.ones(2, 2)).sum().backward()\n",
        "unused-parameters",
        "find_unused_parameters",
    ),
    Broken(
        "models of two sizes",
        _DDP + "dist.init_process_group('gloo', timeout=limit)\n"
        "DistributedDataParallel(torch.nn.Linear(2, 2 + dist.get_rank()))\n",
        "model-differs",
        "",
    ),
    Broken(
        "a world that the script has written down",
        _DDP + "rank = int(os.environ['RANK'])\n"
        "dist.init_process_group('gloo', rank=rank, world_size=3, timeout=limit)\n",
        "rendezvous-timeout",
        "",
    ),
    Broken(
        "one rank that is done before the others",
        _DDP + "dist.init_process_group('gloo', timeout=limit)\n"
        "if dist.get_rank() == 1: os._exit(0)\ndist.all_reduce(torch.ones(2))\n",
        "peer-gone collective-timeout",
        "",
    ),
)
