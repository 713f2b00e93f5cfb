"""Last lines that libraries print where something fails, each with an exit code, its cause and words of that."""

from __future__ import annotations

PRINTED = [
    (
        "  what():  [/src/horovod/common/gloo/http_store.cc:54] [/src/horovod/common/gloo/http_store.cc:54] Wait "
        "timeout after 45 seconds for key(s): 2. You may want to increase the timeout via HOROVOD_GLOO_TIMEOUT_SECONDS",
        None,
        "rendezvous-timeout",
        "waited 45 s in hvd.init for rank 2",
    ),
    (
        "1!: [allreduce.head.weight, allreduce.head.bias]",
        None,
        "collective-timeout",
        "(allreduce.head.weight) for rank 1,",
    ),
    (
        "dttui: somebody tampered with the rendezvous: state split; that cannot be put right",
        76,
        "rendezvous-tampered",
        "Somebody who is no node of the job",
    ),
    ("Out of memory: Killed process 4711 (python3) total-vm:9", 137, "host-oom", "The kernel of gpu2 killed a process"),
    ("train.py: error: unrecognized arguments: --lrx 1", 2, "arguments", "unrecognized arguments: --lrx 1"),
    ("Error: No such option: --lrx", 2, "arguments", "--lrx"),
    ("/usr/bin/python3: No module named trainer", 1, "missing-module", "no module trainer"),
    (
        "/usr/bin/python3: can't open file '/w/train.py': [Errno 2] No such file or directory",
        2,
        "missing-file",
        "/w/train.py",
    ),
    ("cannot start /opt/py: [Errno 2] No such file or directory: '/opt/py'", 127, "interpreter-missing", "/opt/py"),
    ("cannot start python3: [Errno 2] No such file or directory: '/data/w'", 127, "workdir-missing", "/data/w"),
    ("cannot start ./run: [Errno 13] Permission denied: './run'", 127, "not-executable", "./run"),
    ("sh: 1: torchrunx: not found", 127, "interpreter-missing", "torchrunx"),
    ("bash: line 1: torchrunx: command not found", 127, "interpreter-missing", "torchrunx"),
    ("/usr/bin/env: ‘python’: No such file or directory", 127, "interpreter-missing", "python"),
    ("sh: 1: ./go.sh: Permission denied", 126, "not-executable", "./go.sh"),
    ("cat: /data/x: No such file or directory", 1, "missing-file", "/data/x"),
    ("dd: error writing '/small/x': No space left on device", 1, "disk-full", "gpu2"),
    (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        1,
        "shm-full",
        "/dev/shm",
    ),
    (
        "gpu1:42:99 [0] init.cc:1161 NCCL WARN Mismatched NCCL version detected : rank 1 version 21805 rank 0 "
        "version 21403",
        None,
        "nccl-version",
        "21805",
    ),
    (
        "[rank7]:[E816 01:45:40.183 ProcessGroupNCCL.cpp:607] [Rank 7] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=80078, OpType=BROADCAST, NumelIn=5056, NumelOut=5056, Timeout(ms)=600000) ran for 600026 "
        "milliseconds before timing out.",
        None,
        "collective-timeout",
        "600 s in a collective (BROADCAST)",
    ),
    (
        "gpu1:4242:4300 [0] transport/net_socket.cc:536 NCCL WARN NET/Socket : peer 10.0.0.2<41234> message truncated "
        ": receiving 262144 bytes instead of 65536. If you believe your socket network is in a healthy state,",
        None,
        "collective-mismatch",
        "262144 bytes",
    ),
    (
        "gpu1:4242:4300 [0] transport/net_ib.cc:1023 NCCL WARN NET/IB : req 0/1 tag 1c peer 10.0.0.2<47654> collective "
        "mismatch error, local size 524288 remote size 131072",
        None,
        "collective-mismatch",
        "where 131072 were expected",
    ),
    ("terminate called without an active exception", None, "aborted", "as gloo's do now and then"),
]
