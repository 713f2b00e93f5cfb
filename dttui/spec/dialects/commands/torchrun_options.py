"""The options of torchrun, and of programs that take the same."""

from __future__ import annotations

from dttui.spec.dialects.commands.launcher_options import Options

FLAGS = ("--standalone", "--module", "--no-python", "--run-path", "--virtual-local-rank", "--use-env")
"""Options without a value; `--use-env` is of the older torch.distributed.launch."""
VALUED = (
    "--nnodes",
    "--nproc-per-node",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--rdzv-id",
    "--rdzv-conf",
    "--max-restarts",
    "--monitor-interval",
    "--start-method",
    "--event-log-handler",
    "--role",
    "--log-dir",
    "--redirects",
    "--tee",
    "--local-ranks-filter",
    "--duplicate-stdout-filters",
    "--duplicate-stderr-filters",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--local-addr",
    "--logs-specs",
    "--numa-binding",
    "--signals-to-handle",
    "--shutdown-timeout",
)
"""Options with a value (torch 2.13, torch/distributed/run.py)."""
SHORT = {"-m": "--module", "-r": "--redirects", "-t": "--tee"}
TORCHRUN = Options("torchrun", frozenset(VALUED), frozenset(FLAGS), short=SHORT, is_complete=True)
