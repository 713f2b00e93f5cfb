"""NCCL, gloo, the rendezvous, peers and ports."""

from __future__ import annotations

from dttui.diagnosis.advice import (
    BEFORE_HOROVOD,
    BEFORE_INIT,
    HANGING,
    LATE_RANK,
    LOOK_AT_FIRST,
    NAME_CALLS,
    NCCL_DEBUG,
    NETWORK,
    RECORDED,
    SAME_CALLS,
    SAME_MODEL,
    SAME_VERSIONS,
    STRANGERS,
)
from dttui.diagnosis.recogniser import Recogniser
from dttui.diagnosis.rows.patterns import GAP, GLOO_PEER, NCCL_PEER, RAISED, WIDE_GAP
from dttui.i18n import N_

_CALL = r"\w+(?:, TensorShape=\[[\d, ]{0,80}\])?"
"""A call as torch tells it where it compares those of all ranks."""
_OTHER_SIZE = N_(
    "A collective was brought {got} bytes by another rank where {wanted} were expected: the ranks called different "
    "collectives, or one with tensors of different sizes or types."
)
_TRUNCATED = r"message truncated : receiving (?P<got>\d+) bytes instead of (?P<wanted>\d+)"
_UNEQUAL = r"collective mismatch error,? local size (?P<got>\d+) remote (?:size )?(?P<wanted>\d+)"
"""NCCL's words over sockets, and over InfiniBand, where the sender finds it out."""

ROWS: tuple[Recogniser, ...] = (
    # NCCL, before the general words for peers.
    Recogniser(
        "nccl-version",
        N_("NCCL differs between the hosts: rank {rank_a} has version {version_a}, rank {rank_b} {version_b}."),
        (SAME_VERSIONS,),
        rf"{RAISED}.*Mismatched NCCL version detected : rank (?P<rank_a>\d+) version (?P<version_a>\d+) "
        r"rank (?P<rank_b>\d+) version (?P<version_b>\d+)",
        r"Mismatched NCCL version detected : rank (?P<rank_a>\d+) version (?P<version_a>\d+) "
        r"rank (?P<rank_b>\d+) version (?P<version_b>\d+)",
    ),
    Recogniser(
        "gpu-shared-by-ranks",
        N_("Ranks {rank_a} and {rank_b} used the same GPU; NCCL wants one each."),
        (N_("Let the script call torch.cuda.set_device(LOCAL_RANK) first of all, and keep CUDA_VISIBLE_DEVICES."),),
        rf"{RAISED}.*Duplicate GPU detected : rank (?P<rank_a>\d+) and rank (?P<rank_b>\d+) both on CUDA device",
    ),
    Recogniser(
        "collective-mismatch",
        N_("Rank {rank_a} called another collective ({call_a}) than rank {rank_b} ({call_b}), or with another size."),
        (SAME_CALLS,),
        rf"{RAISED}.*Detected mismatch between collectives on ranks\. Rank (?P<rank_a>\d+) is running collective: "
        rf"CollectiveFingerPrint\({GAP}OpType=(?P<call_a>{_CALL}){WIDE_GAP}but Rank (?P<rank_b>\d+) is running "
        rf"collective: CollectiveFingerPrint\({GAP}OpType=(?P<call_b>{_CALL})",
    ),
    Recogniser(
        "collective-mismatch",
        _OTHER_SIZE,
        (SAME_CALLS, NAME_CALLS),
        rf"{RAISED}.*op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<wanted>\d+)",
    ),
    Recogniser(
        "collective-mismatch",
        _OTHER_SIZE,
        (SAME_CALLS, NAME_CALLS),
        rf"{RAISED}.*{_TRUNCATED}",
        rf"NCCL WARN {GAP}{_TRUNCATED}",
    ),
    Recogniser(
        "collective-mismatch",
        _OTHER_SIZE,
        (SAME_CALLS, NAME_CALLS),
        rf"{RAISED}.*{_UNEQUAL}",
        rf"NCCL WARN {GAP}{_UNEQUAL}",
    ),
    Recogniser(
        "collective-mismatch",
        N_("The ranks did not call the same collectives in the same order, or with tensors of the same shape."),
        (SAME_CALLS, NAME_CALLS),
        rf"{RAISED}.*(?:Detected mismatch between collectives on ranks|Mismatched collective detected)",
        r"NCCL WARN Mismatched collective detected",
    ),
    Recogniser(
        "unused-parameters",
        N_("Parameters of the model had no part in the loss, and DDP waited for their gradients: {names}."),
        (N_("Leave those parameters out, or say find_unused_parameters=True to DistributedDataParallel."),),
        rf"{RAISED}Expected to have finished reduction in the prior iteration.*"
        r"Parameters which did not receive grad for rank \d+: (?P<names>[^\n]+)",
    ),
    Recogniser(
        "unused-parameters",
        N_("Parameters of the model had no part in the loss, and DDP waited for their gradients."),
        (
            N_("Leave those parameters out, or say find_unused_parameters=True to DistributedDataParallel."),
            N_("TORCH_DISTRIBUTED_DEBUG=INFO under run.env names them."),
        ),
        rf"{RAISED}Expected to have finished reduction in the prior iteration",
    ),
    Recogniser(
        "model-differs",
        N_("The ranks have made different models: rank {rank_a} has {count_a} parameters, rank {rank_b} {count_b}."),
        (SAME_MODEL,),
        rf"{RAISED}DDP expects same model across all ranks, but Rank (?P<rank_a>\d+) has (?P<count_a>\d+) params, "
        r"while rank (?P<rank_b>\d+) has inconsistent (?P<count_b>\d+) params",
    ),
    Recogniser(
        "model-differs",
        N_("The ranks have made different models: parameter {index} of rank {rank_a} has the shape {shape} there."),
        (SAME_MODEL,),
        rf"{RAISED}\[(?P<rank_a>\d+)\]: params\[(?P<index>\d+)\] in this process with (?:sizes|strides) "
        r"(?P<shape>\[[\d, ]*\]) appears not to match",
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited {seconds} s in a collective ({operation}) that some rank never came to."),
        (HANGING, RECORDED),
        rf"{RAISED}.*Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, OpType=(?P<operation>\w+)"
        rf"{WIDE_GAP}ran for (?P<milliseconds>\d+) milliseconds",
        r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+, OpType=(?P<operation>\w+)"
        rf"{WIDE_GAP}ran for (?P<milliseconds>\d+) milliseconds",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited {seconds} s in a collective ({operation}) that some rank never came to."),
        (HANGING,),
        r"[\w.]*CollectiveTimeoutError: (?P<operation>\w+) timed out after (?P<seconds>[\d.e+]+) s: ranks? ",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("Ranks {ranks} did not come to a barrier in time."),
        (HANGING,),
        rf"{RAISED}.*\[Rank \d+\]: Ranks (?P<ranks>[\d, ]+) failed to pass monitoredBarrier",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited {seconds} s for another rank's data, which never came."),
        (HANGING,),
        rf"{RAISED}.*Timed out waiting (?P<milliseconds>\d+)ms for (?:recv|send) operation",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited in a collective that some rank never came to."),
        (HANGING,),
        rf"{RAISED}.*(?:(?:timed out in|failed to pass) monitoredBarrier|Application timeout caused pair closure)",
        is_consequence=True,
    ),
    Recogniser(
        "collective-timeout",
        N_("It waited in a collective of Horovod ({operation}) for rank {missing}, which did not come to it in time."),
        (LATE_RANK, HANGING),
        printed=r"^(?P<missing>\d+)!: \[(?P<operation>[^\s,\]]+)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited {seconds} s in init_process_group for rank {missing}, which did not come there."),
        (LATE_RANK, BEFORE_INIT, NETWORK),
        rf"{RAISED}.*wait timeout after (?P<milliseconds>\d+)ms, keys: /\S*//\w+//\d+/(?P<missing>\d+)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited {seconds} s in NCCL's set-up for rank {missing}, which did not come there."),
        (LATE_RANK, BEFORE_INIT, NETWORK),
        rf"{RAISED}.*retrieving ncclUniqueId from \[(?P<missing>\d+)\]{WIDE_GAP}timeout after (?P<milliseconds>\d+)ms",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("Only {joined} of {size} ranks came to init_process_group in time."),
        (BEFORE_INIT, NETWORK),
        rf"{RAISED}.*Timed out initializing process group in store based barrier{GAP}"
        r"\(world_size=(?P<size>\d+), num_workers_joined=(?P<joined>\d+)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("Only {joined} of {size} ranks came to the rendezvous within {waited} s."),
        (BEFORE_INIT, NETWORK),
        rf"{RAISED}.*Timed out after (?P<waited>\d+) seconds waiting for clients\. "
        r"(?P<joined>\d+)/(?P<size>\d+) clients",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It could not reach the master at {address}, port {port}."),
        (NETWORK,),
        rf"{RAISED}.*The client socket has (?:timed out after \w+ while trying to connect to|failed to connect to any "
        r"network address of) \((?P<address>[^,]+), (?P<port>\d+)\)",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited at the rendezvous for ranks that never came."),
        (NETWORK,),
        r"(?:[\w.]*Rendezvous(?:Timeout|Connection)Error\b"
        rf"|{RAISED}(?:.*Gloo connectFullMesh failed with|.*wait timeout after \d+ms, keys: /?default_pg"
        r"|.*TCP client failed to connect/validate to host|.*barrier timeout after \d+ms))",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-timeout",
        N_("It waited {waited} s in hvd.init for rank {missing}, which did not come there."),
        (LATE_RANK, BEFORE_HOROVOD, NETWORK),
        printed=r"what\(\):.*Wait timeout after (?P<waited>\d+) seconds for key\(s\): \[?(?P<missing>\d+)",
        is_consequence=True,
    ),
    Recogniser(
        "peer-gone",
        N_(
            "Horovod was shut down: by an exception on another rank, since the script came to its end there, or since "
            "a rank had come to no collective for as long as communication.collective_timeout."
        ),
        (LOOK_AT_FIRST,),
        rf"[\w.]*HorovodInternalError: (?:Horovod has been shut down|.*{GLOO_PEER})",
        is_consequence=True,
    ),
    Recogniser(
        "peer-gone",
        N_("It lost the connection to another rank, which had ended or could not be reached any more."),
        (LOOK_AT_FIRST, NETWORK),
        rf"{RAISED}(?:\[[^\]\n]*\.cc:\d+\] .*{GLOO_PEER}|.*NCCL error{WIDE_GAP}{NCCL_PEER}|.*{NCCL_PEER}"
        rf"|.*gloo{WIDE_GAP}{GLOO_PEER}|{GLOO_PEER} \[[\d.:a-f]+\]"
        r"|.*Connection was likely closed\. Did the remote server shutdown or crash"
        r"|(?:recvValue|sendBytes|recvBytes|waitForInput)\w* failed on|.*failed to recv, got 0 bytes)"
        r"|[\w.]*CollectiveTimeoutError: \w+ was broken off: ranks? ",
        is_consequence=True,
    ),
    Recogniser(
        "rendezvous-tampered",
        N_("Somebody who is no node of the job wrote to its rendezvous, by which torchrun's nodes find each other."),
        (STRANGERS,),
        r"[\w.]*TamperedError: the rendezvous was tampered with",
        printed=r"dttui: somebody tampered with the rendezvous: .*cannot be put right",
    ),
    Recogniser(
        "peer-gone",
        N_("It lost the connection to the rendezvous store on the master, which had ended or could not be reached."),
        (LOOK_AT_FIRST, NETWORK),
        r"[\w.]*(?:DistNetworkError|DistStoreError): (?!.*EADDRINUSE)",
        is_consequence=True,
    ),
    Recogniser(
        "aborted",
        N_("It aborted as it took itself down: threads still ran, as gloo's do now and then when a script is over."),
        (
            N_("Its work may be done: see whether its last lines and checkpoint are there."),
            N_("Let the script end by a barrier, flush what it printed, and call os._exit(0): gloo cannot abort then."),
        ),
        printed=r"^terminate called without an active exception$",
    ),
    # Ports.
    Recogniser(
        "port-in-use",
        N_("Port {port} of {host} was taken by another process."),
        (N_("Launch again: another port will be chosen. If the script itself chooses it, let it take MASTER_PORT."),),
        rf"{RAISED}.*(?:port: (?P<port>\d+), {WIDE_GAP}EADDRINUSE)",
    ),
    Recogniser(
        "port-in-use",
        N_("A port that the script wanted on {host} was taken by another process."),
        (N_("Let the script take a free port (port 0), one of its own for each rank."),),
        rf"{RAISED}.*(?:EADDRINUSE|\[Errno 98\] {GAP}address already in use|\[Errno 98\] Address already in use"
        rf"|bind\S{{0,80}} {GAP}: Address already in use|Address already in use$)",
        r"(?:EADDRINUSE|[Aa]ddress already in use)$",
    ),
    Recogniser(
        "nccl-error",
        N_("NCCL failed: {last}"),
        (NCCL_DEBUG, NETWORK),
        rf"{RAISED}.*NCCL (?:error|failure){WIDE_GAP}Last error:\s*(?P<last>[^\n]+)",
    ),
    Recogniser(
        "nccl-error",
        N_("NCCL failed."),
        (NCCL_DEBUG, NETWORK),
        r"[\w.:]*(?:DistBackendError|RuntimeError): .*?NCCL (?:error|failure|Error)",
    ),
)
