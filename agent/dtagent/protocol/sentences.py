"""The catalogue of all that agents say to people: each sentence once, by its code, which no version changes.

Agents say them in English; dttui knows them by their codes and says them in its reader's language.
"""

from __future__ import annotations

from dtagent.protocol.said import Said, Sentence, recalled

TYPE_CHECKING = False  # As typing's: `dtagent connect` imports this.
if TYPE_CHECKING:
    from typing import Any

# Of requests and answers.
BAD_FRAME = Sentence("bad-frame", "what came is no request: {error}")
BAD_ID = Sentence("bad-id", "id must be a number or a string, not {kind}")
FIRST_CALL = Sentence("first-call", "the first call must be {method}")
UNKNOWN_METHOD = Sentence("unknown-method", "no method {method} in dtagent {version}")
REQUEST_TOO_LARGE = Sentence("request-too-large", "{method}: a request of {size} bytes; the limit is {limit}")
PARAMS_NO_OBJECT = Sentence("params-no-object", "{method}: params must be an object, not {kind}")
PARAM_MISSING = Sentence("param-missing", "{method}: {field} is missing")
PARAM_OF_OTHER_KIND = Sentence("param-of-other-kind", "{method}: {field} must be {wanted}, not {kind}")
PARAM_OUT_OF_RANGE = Sentence("param-out-of-range", "{method}: out of range: {error}")
PARAMS_DO_NOT_FIT = Sentence("params-do-not-fit", "{method}: the params do not fit")
PACKED_DOES_NOT_FIT = Sentence("packed-does-not-fit", "start: what came packed does not fit: {error}")
NO_COMMON_VERSION = Sentence(
    "no-common-version", "dtagent {version} speaks protocol versions {versions}, {client} speaks {wanted}; {remedy}"
)
UNNAMED_CLIENT = Sentence("unnamed-client", "the client")
UPGRADE_AGENT = Sentence("upgrade-agent", "upgrade the agent: dttui agents deploy HOST")
UPGRADE_DTTUI = Sentence("upgrade-dttui", "upgrade dttui")
ANSWER_TOO_LARGE = Sentence("answer-too-large", "an answer of {size} bytes; the limit is {limit}")
ANSWER_NOT_SENT = Sentence("answer-not-sent", "the answer cannot be sent: {error}")
ANSWER_TOO_SLOW = Sentence(
    "answer-too-slow", "the answer was not made within {seconds} s; something on this host hangs"
)
CALL_TOO_SLOW = Sentence("call-too-slow", "{method}: not done within {seconds} s; something on this host hangs")
CALL_BROKEN = Sentence("call-broken", "a fault of the agent: {error}")
DISK_WITHOUT_ROOM = Sentence("disk-without-room", "{method}: no room left on the disk of {path}")
AGENT_WITHOUT_ROOM = Sentence("agent-without-room", "{method}: no room left on the disk of the agent")
HOST_IS_SHORT = Sentence("host-is-short", "{method}: this host is short of file handles or memory: {error}")
NO_MORE_THREADS = Sentence("no-more-threads", "this host lets no more threads start")
TOO_MANY_CLIENTS = Sentence("too-many-clients", "{count} clients are connected already")
ATTEMPT_BUSY = Sentence("attempt-busy", "an earlier call on attempt {attempt} of {job} has not come back")
PREPARE_BUSY = Sentence("prepare-busy", "an earlier call on another attempt has not come back")

# Of attempts that are prepared and started.
NO_SUCH_ATTEMPT = Sentence("no-such-attempt", "no attempt {attempt} of job {job} here")
BAD_ATTEMPT = Sentence("bad-attempt", "no attempt can be called that: {error}")
NOT_PREPARED = Sentence("not-prepared", "the attempt was not prepared")
PREPARED_OTHERWISE = Sentence("prepared-otherwise", "the attempt was prepared otherwise before")
STARTED_ALREADY = Sentence("started-already", "the attempt was started already")
GIVEN_UP_ALREADY = Sentence("given-up-already", "the attempt was given up already")
SEEN_ALREADY = Sentence("seen-already", "attempt {attempt} of job {job} was seen here already")
STILL_RUNS = Sentence("still-runs", "attempt {attempt} of the job still runs here")
START_RECORD_GONE = Sentence("start-record-gone", "the attempt has run here, but the record of its start is gone")
CANNOT_READ = Sentence("cannot-read", "{path} cannot be read")
CANNOT_WRITE = Sentence("cannot-write", "cannot write {path}: {reason}")
PATHS_MISSING = Sentence("paths-missing", "there is no {paths} here")
PATHS_SILENT = Sentence("paths-silent", "the file system of {paths} does not answer")
NO_INTERPRETER = Sentence("no-interpreter", "there is no interpreter {python} here")
NAMES_SILENT = Sentence("names-silent", "the way to {address} cannot be looked up: the name service does not answer")
NO_MORE_LOOKS = Sentence("no-more-looks", "this host lets no more looks at it start: too many threads run, or hang")
GPUS_WANTED = Sentence("gpus-wanted", "{wanted} GPUs are wanted and {free} are free here")
GPUS_HELD = Sentence("gpus-held", "{wanted} GPUs are wanted and {free} are free here; {who}")
NO_SUCH_GPU = Sentence("no-such-gpu", "this host has no GPU {gpus}")
NAMED_GPUS_WANTED = Sentence("named-gpus-wanted", "GPU {wanted} wanted, GPU {taken} not free here")
NAMED_GPUS_HELD = Sentence("named-gpus-held", "GPU {wanted} wanted, GPU {taken} not free here; {who}")
SIMULATED_WANTED = Sentence("simulated-wanted", "{wanted} simulated GPUs are wanted and {free} are free here")
SIMULATED_HELD = Sentence("simulated-held", "{wanted} simulated GPUs are wanted and {free} are free here; {who}")
JOB_HAS_GPUS = Sentence("job-has-gpus", "job {job} has GPU {gpus}")
JOB_HAS_GPUS_SINCE = Sentence("job-has-gpus-since", "job {job} has GPU {gpus} since {since}")
USER_HAS_GPUS_SINCE = Sentence("user-has-gpus-since", "job {job} of {user} has GPU {gpus} since {since}")
JOB_WAITS_FOR_GPUS = Sentence("job-waits-for-gpus", "job {job} of {user} has waited for {count} since {since}")
GPUS_NOT_LOCKED = Sentence(
    "gpus-not-locked",
    "the GPUs of this host cannot be kept from its other users: {path}: {reason}; root mends it by"
    " install -d -m 1777 {path}",
)
JOB_HAS_SIMULATED_SINCE = Sentence("job-has-simulated-since", "job {job} has {count} since {since}")
PORTS_TAKEN = Sentence("ports-taken", "every port from {first} to {last} is taken")
TOO_LATE_FOR_GPUS = Sentence("too-late-for-gpus", "the start came too late: {who} by now")
TOO_LATE_FOR_SIMULATED = Sentence(
    "too-late-for-simulated", "the start came too late: job {jobs} has the simulated GPUs by now"
)
TOO_LATE_FOR_PORT = Sentence("too-late-for-port", "the start came too late: port {port} is taken by now")

# Of files that are sent.
NOT_BASE64 = Sentence("not-base64", "not base64: {error}")
NOT_INSIDE = Sentence("not-inside", "not a path inside the attempt's directory: {path}")
NO_FILE_LIST = Sentence("no-file-list", "not a list of files")
BAD_FILE_LIST = Sentence("bad-file-list", "not a list of files: {error}")
OTHER_FILE_LIST = Sentence("other-file-list", "the list of files is not what its name says")
UNREADABLE_FILE_LIST = Sentence("unreadable-file-list", "the list of files is not UTF-8")
PART_NOT_ASKED_FOR = Sentence("part-not-asked-for", "this part was not asked for")
BAD_PART = Sentence("bad-part", "this part is not what was asked for: {error}")
NO_ROOM_FOR_FILES = Sentence(
    "no-room-for-files", "no room for the files: {needed} MB are needed and {free} MB are free below {path}"
)

# Why an attempt ended on a host.
STOPPED = Sentence("stopped", "stopped")
PROCESS_FAILED = Sentence("process-failed", "a process failed")
SELF_FENCED = Sentence(
    "self-fenced", "nobody asked after the job for as long as recovery.self_fence_s says, and its processes were ended"
)
NO_SUPERVISOR = Sentence("no-supervisor", "the supervisor did not start")
SUPERVISOR_DIED = Sentence("supervisor-died", "the supervisor on this host died")
HOST_RESTARTED = Sentence("host-restarted", "the host was restarted")
RECORDS_REMOVED = Sentence("records-removed", "its records on this host were removed; what still ran of it was ended")
END_RECORD_DAMAGED = Sentence("end-record-damaged", "a record of how it ended on this host is damaged")

# Warnings of an attempt.
FILES_MADE_ANEW = Sentence(
    "files-made-anew", "the agent's files of this job were removed from this host while it ran, and made anew"
)
JOURNAL_DAMAGED = Sentence("journal-damaged", "damaged records of the journal were left out; they are kept in {path}")
DISK_WAS_FULL = Sentence("disk-was-full", "the disk of {path} was full at {time}: logs lack what did not fit")
LOGS_UNCAPPED = Sentence(
    "logs-uncapped", "logs are not capped: the file system of {path} cannot drop part of a file ({reason})"
)
CONTAINER_LEFT = Sentence("container-left", "the container of {name} may still be there, {command}: {reason}")
EXIT_CODE = Sentence("exit-code", "exit code {code}")
NO_ANSWER = Sentence("no-answer", "no answer within {seconds} s")

# Of checkpoints that are passed over.
MARK_IS_MISSING = Sentence("mark-is-missing", "there is no {file} yet")
NOT_YET_NAMED = Sentence("not-yet-named", "{file} does not name it yet")
FILE_IS_MISSING = Sentence("file-is-missing", "{file} is missing")
FILE_IS_EMPTY = Sentence("file-is-empty", "{file} is empty")
FILE_ENDS_EARLY = Sentence("file-ends-early", "{file} ends early")
FILE_HAS_CHANGED = Sentence("file-has-changed", "{file} has changed since it was written: its checksum does not hold")
FILE_IS_SHORT = Sentence("file-is-short", "{file} ends after {size} of {wanted} bytes")
FILE_IS_NONE = Sentence("file-is-none", "{file} does not hold what its name says")
FILE_IS_NEWER = Sentence("file-is-newer", "{file} is newer than {other}: it was being overwritten")
FILE_IS_HUGE = Sentence("file-is-huge", "{file} takes more memory to read than there is for that")
FILE_NOT_READ = Sentence("file-not-read", "{file} cannot be read: {error}")
FILE_ELSEWHERE = Sentence("file-elsewhere", "{file} names {other}, which lies elsewhere")
OF_ANOTHER_STEP = Sentence("of-another-step", "{file} is of step {step}")
TOO_MANY_FILES = Sentence("too-many-files", "more than {limit} files")
PARTS_OF_ONE = Sentence("parts-of-one", "there are several files, and none says that it is the last one written")
CAME_TO_NOTHING = Sentence("came-to-nothing", "an attempt that resumed from it came to nothing")
SEARCH_SILENT = Sentence("search-silent", "the search for checkpoints was not done within {seconds} s")
SEARCH_FAILED = Sentence("search-failed", "checkpoints could not be looked for: {error}")
NOT_REMOVED = Sentence("not-removed", "{path} cannot be removed: {error}")

# Of copies of checkpoints on other hosts.
COPY_OF_A_LINK = Sentence("copy-of-a-link", "{path} is a link to a directory: what it leads to is not copied")
COPY_OF_NO_FILE = Sentence("copy-of-no-file", "{path} is no file")
COPY_OF_A_NAME = Sentence("copy-of-a-name", "{path}: no file of a copy can be called that")
COPY_MAKES_NO_SENSE = Sentence("copy-makes-no-sense", "what the other host wants to send makes no sense")
COPY_NO_WAY = Sentence("copy-no-way", "{place} cannot be reached: {error}")
COPY_CUT = Sentence("copy-cut", "the connection was cut: {error}")
COPY_CHANGED = Sentence("copy-changed", "{path} has changed meanwhile")
COPY_DIFFERS = Sentence("copy-differs", "{file} came otherwise than it was sent")
COPY_UNDER_WAY = Sentence("copy-under-way", "another copy is being written there")
COPY_WITHOUT_ROOM = Sentence("copy-without-room", "{path} has room for {free} MiB, and {wanted} are to come")
COPY_NOT_BEGUN = Sentence("copy-not-begun", "no copy: {error}")
NO_STORE = Sentence("no-store", "not a directory of copies: {path}")

# Of warm starts.
NO_WARM_START = Sentence("no-warm-start", "no warm start: {reason}")
NO_WARM_START_OF_SOME = Sentence("no-warm-start-of-some", "no warm start of some processes: {reason}")
FORK_SERVER_DIED = Sentence("fork-server-died", "the process that had forked it died")
WARM_NONE = Sentence("warm-none", "no process with torch imported is there")
WARM_CHANGED = Sentence("warm-changed", "its packages have changed since torch was imported")
WARM_FILES_SILENT = Sentence("warm-files-silent", "the file system of its packages does not answer")
WARM_ENDED = Sentence("warm-ended", "it ended")
WARM_ENDED_AT_ONCE = Sentence("warm-ended-at-once", "it ended at once")
WARM_ENDED_IMPORTING = Sentence("warm-ended-importing", "it ended while torch was imported")
WARM_NONSENSE = Sentence("warm-nonsense", "it tells nonsense of what it has imported")
WARM_TAKES_NOTHING = Sentence("warm-takes-nothing", "it takes no requests: {error}")
WARM_SILENT = Sentence("warm-silent", "it does not answer: {error}")
WARM_TOO_SLOW = Sentence("warm-too-slow", "it has not answered within {seconds} s")
WARM_NO_TORCH = Sentence("warm-no-torch", "torch cannot be imported: {error}")
WARM_THREADS = Sentence("warm-threads", "{count} threads run after the imports, and would be missing in what is forked")
WARM_CUDA = Sentence("warm-cuda", "CUDA is initialised by the imports, and cannot be used in what is forked")
WARM_SAFE_PATH = Sentence("warm-safe-path", "Python is told by PYTHONSAFEPATH to look for modules in another order")
WARM_RELATIVE_PATH = Sentence("warm-relative-path", "PYTHONPATH is relative")
WARM_PRIORITY = Sentence("warm-priority", "its priority is not that of the job")
WARM_CGROUPS = Sentence("warm-cgroups", "its cgroups are not those of the job")
WARM_NOT_MOVED = Sentence("warm-not-moved", "it cannot be moved to {directory}")
WARM_OTHER_PYTHON = Sentence("warm-other-python", "the interpreter is {program}, and torch was imported by {python}")
WARM_OPTION = Sentence("warm-option", "Python is started with {option}")
WARM_OTHER_ENVIRONMENT = Sentence("warm-other-environment", "{names} had another value when torch was imported")
WARM_HIDDEN_MODULES = Sentence(
    "warm-hidden-modules", "{path} has modules that hide some of those torch was imported with: {names}"
)

# Of interpreters.
PYTHON_NOT_EXAMINED = Sentence("python-not-examined", "{python} was not examined: too many others do not answer")
PYTHON_ONE_TOO_MANY = Sentence(
    "python-one-too-many", "{python} was not examined: at most {count} interpreters can be asked about at once"
)
PYTHON_UNREACHABLE = Sentence("python-unreachable", "{python} cannot be reached: its file system does not answer")
PYTHON_SILENT = Sentence("python-silent", "{python} gave no answer within {seconds} s")
PYTHON_IS_NONE = Sentence("python-is-none", "{python} does not answer as Python does")
PYTHON_FLOODS = Sentence("python-floods", "{python} does not answer as Python does: it prints without end")
PYTHON_NOT_RUN = Sentence("python-not-run", "{python} cannot be run: {error}")
PYTHON_KILLED = Sentence("python-killed", "{python} was ended by {signal}")
PYTHON_KILLED_SAYING = Sentence("python-killed-saying", "{python} was ended by {signal}: {error}")
PYTHON_EXITS = Sentence("python-exits", "{python} exits with {code}")
PYTHON_EXITS_SAYING = Sentence("python-exits-saying", "{python} exits with {code}: {error}")
PYTHON_TOO_OLD = Sentence("python-too-old", "{python} is Python {version}; {oldest} is the oldest that can be used")
PYTHON_NO_PATH = Sentence("python-no-path", "{python} is not a path")
PYTHON_NAMELESS = Sentence("python-nameless", "an empty name is not a path")
PYTHON_NOT_ON_PATH = Sentence("python-not-on-path", "{python} is not on this host's PATH")
PYTHON_RELATIVE = Sentence("python-relative", "{python} is a relative path; give an absolute one, or a name on PATH")
PYTHON_MISSING = Sentence("python-missing", "{python} is not there")
PYTHON_A_DIRECTORY = Sentence("python-a-directory", "{python} is a directory")
PYTHON_NOT_EXECUTABLE = Sentence("python-not-executable", "{python} is not executable")

# Of GPUs and their driver.
DRIVER_SILENT = Sentence("driver-silent", "the NVIDIA driver does not answer")
DRIVER_SILENT_FOR = Sentence("driver-silent-for", "the NVIDIA driver has not answered for {seconds} s")
DRIVER_SEES_NONE = Sentence("driver-sees-none", "the NVIDIA driver sees no GPU")
DRIVER_FORBIDDEN = Sentence(
    "driver-forbidden", "this user may not use the NVIDIA driver; ask for access to /dev/nvidia*"
)
DRIVER_NOT_LOADED = Sentence("driver-not-loaded", "the NVIDIA driver is installed but not loaded")
DRIVER_UPDATED = Sentence(
    "driver-updated", "the NVIDIA driver was updated while it was loaded; the host needs a reboot"
)
DRIVER_MISSING = Sentence("driver-missing", "no NVIDIA driver: {library} is not installed")
DRIVER_NOT_LOADABLE = Sentence("driver-not-loadable", "the NVIDIA driver's library cannot be loaded: {error}")
DRIVER_FAILS = Sentence("driver-fails", "the NVIDIA driver fails: {error}")
GPU_SILENT = Sentence("gpu-silent", "the driver has not answered for {seconds} s")
GPU_HANGS = Sentence("gpu-hangs", "the driver has not answered for {seconds} s: {call} hangs")
GPU_ANSWERS_NOTHING = Sentence("gpu-answers-nothing", "the driver answers no question about this GPU")
GPU_UNUSABLE = Sentence("gpu-unusable", "GPU {index}: {error}")
GPUS_UNUSABLE = Sentence("gpus-unusable", "{gpus}")

# Of what a preflight looks at.
TOO_MANY_TARGETS = Sentence("too-many-targets", "{count} targets; the limit is {limit}")
TOO_MANY_PATHS = Sentence("too-many-paths", "{count} paths; the limit is {limit}")
NOT_ABSOLUTE = Sentence("not-absolute", "not an absolute path: {path}")
PATH_WITH_ZERO = Sentence("path-with-zero", "a path is empty or has a zero byte")
NO_FILE_THERE = Sentence("no-file-there", "{path} is neither a file nor a directory")
NO_PLAIN_NAME = Sentence("no-plain-name", "the name {path} is no plain text, and nothing here could be called so")
PROGRAM_WITH_ZERO = Sentence("program-with-zero", "the name of a program has a zero byte")
NOT_LOOKED_UP = Sentence("not-looked-up", "not looked up within {seconds} s")
NO_ENGINE = Sentence("no-engine", "not a container engine: {engine}")
NO_IMAGE = Sentence("no-image", "not an image: {image}")
BAD_TOKEN = Sentence("bad-token", "a token has {count} hexadecimal digits")
TOKEN_IN_USE = Sentence("token-in-use", "there is a listener of that token")
TOO_MANY_LISTENERS = Sentence("too-many-listeners", "{count} probes listen here already")
BAD_PORT_RANGE = Sentence("bad-port-range", "not a range of ports: {first} to {last}")
PORT_TAKEN_MEANWHILE = Sentence("port-taken-meanwhile", "the port was taken meanwhile: {error}")
NO_FILE_NAME = Sentence("no-file-name", "not the name of a file: {name}")
UNKNOWN_CHECK = Sentence("unknown-check", "this agent knows no check {check}")
MODULE_MISSING = Sentence("module-missing", "ModuleNotFoundError: {error}")
MODEL_SIZES_MISSING = Sentence("model-sizes-missing", "the sizes of the model are not among the arguments")
HOROVOD_FOR_NOTHING = Sentence("horovod-for-nothing", "it can be imported for none of PyTorch, TensorFlow and MXNet")
HOROVOD_WITHOUT_GLOO = Sentence(
    "horovod-without-gloo", "it was built without Gloo, by which its ranks find each other: HOROVOD_WITH_GLOO=1"
)
HOROVOD_WITHOUT_MPI = Sentence("horovod-without-mpi", "it was built without MPI: HOROVOD_WITH_MPI=1")
HOROVOD_WITHOUT_NCCL = Sentence("horovod-without-nccl", "it was built without NCCL: HOROVOD_GPU_OPERATIONS=NCCL")
FRAMEWORK_ENDS = Sentence("framework-ends", "it ends")

# Why `dtagent connect` or the daemon that it starts ended.
STDIO_CLOSED = Sentence("stdio-closed", "stdin and stdout must be open: they lead to the client")
DAEMON_STUCK = Sentence(
    "daemon-stuck", "the daemon has not taken a connection for {seconds} s: it hangs, or is stopped"
)
DAEMON_NOT_STARTED = Sentence("daemon-not-started", "the daemon did not start; see {path}")
DAEMON_DID_NOT_START = Sentence("daemon-did-not-start", "the daemon did not start: {reason}; see {path}")
DAEMON_OF_ANOTHER = Sentence("daemon-of-another", "uid {owner} listens on {path}, not you; remove it")
TOO_FEW_HANDLES = Sentence(
    "too-few-handles", "{count} open files are not enough for the daemon, which needs {needed}: `ulimit -n`"
)
SHORT_OF_THREADS = Sentence("short-of-threads", "this host is short of threads: see `ulimit -u`")
SOCKET_IN_THE_WAY = Sentence(
    "socket-in-the-way", "{path} is in the way: it is no socket, and not the agent's; move it away"
)
ROOT_NOT_MADE = Sentence("root-not-made", "cannot make {root}: {error}")
ROOT_NOT_READ = Sentence("root-not-read", "cannot read {root}: {error}")
ROOT_NO_DIRECTORY = Sentence("root-no-directory", "{root} is not a directory; move it away, or {elsewhere}")
ROOT_OF_ANOTHER = Sentence("root-of-another", "{root} belongs to uid {owner}, not to you; {elsewhere}")
ROOT_EXCHANGEABLE = Sentence(
    "root-exchangeable", "others can exchange {root}, because {parent} is open to them; {elsewhere}"
)
ROOT_WRITABLE = Sentence(
    "root-writable", "others could write to {root}, so what is in it may not be yours; {elsewhere}"
)
ROOT_READABLE = Sentence(
    "root-readable", "others can read {root}; {elsewhere}, or if it is for the agent alone: chmod 700"
)
ROOT_WITH_OTHERS = Sentence(
    "root-with-others", "{root} holds other things than the agent's; {elsewhere}, or an empty directory"
)
ROOT_ON_NETWORK = Sentence(
    "root-on-network", "{root} is on a network file system ({kind}); the agent needs a local disk"
)
ELSEWHERE = Sentence("elsewhere", "choose another place (agent_root in the inventory)")

# Why nothing could read the stack of a process.
STACK_UNREAD = Sentence("stack-unread", "{reasons}")
STACK_TOOL_FAILED = Sentence("stack-tool-failed", "{tool}: {reason}")
STACK_WITHOUT_END = Sentence("stack-without-end", "{tool}: an answer without end")
STACK_STATUS = Sentence("stack-status", "{tool}: status {status}")
STACK_SIGNAL_NOT_CAUGHT = Sentence("stack-signal-not-caught", "signal {number}: not caught")
STACK_SIGNAL_FAILED = Sentence("stack-signal-failed", "signal {number}: {reason}")
STACK_SIGNAL_UNANSWERED = Sentence("stack-signal-unanswered", "signal {number}: no answer in {seconds} s")
STACK_NOT_IN_ANSWER = Sentence("stack-not-in-answer", "no stack in what it wrote")

# What a GPU is held back by, and what its driver asks for: here English is the code, as samples have it.
APPLICATION_CLOCKS = Sentence("application clocks", "application clocks")
POWER_CAP = Sentence("power cap", "power cap")
HARDWARE_SLOWDOWN = Sentence("hardware slowdown", "hardware slowdown")
SYNC_BOOST = Sentence("sync boost", "sync boost")
SOFTWARE_THERMAL_SLOWDOWN = Sentence("software thermal slowdown", "software thermal slowdown")
HARDWARE_THERMAL_SLOWDOWN = Sentence("hardware thermal slowdown", "hardware thermal slowdown")
POWER_BRAKE = Sentence("power brake", "power brake")
DISPLAY_CLOCKS = Sentence("display clocks", "display clocks")
BOARD_LIMIT = Sentence("board limit", "board limit")
RELIABILITY_VOLTAGE = Sentence("reliability voltage", "reliability voltage")
HELD_BACK = frozenset(
    item.code for item in (HARDWARE_SLOWDOWN, SOFTWARE_THERMAL_SLOWDOWN, HARDWARE_THERMAL_SLOWDOWN, POWER_BRAKE)
)
"""Codes of reasons for a low clock that are no choice of anybody's, and not usual under load as a power cap is."""
GPU_RESET = Sentence("GPU reset", "GPU reset")
NODE_REBOOT = Sentence("node reboot", "node reboot")
DRAIN_P2P = Sentence("drain P2P", "drain P2P")
DRAIN_AND_RESET = Sentence("drain and reset", "drain and reset")
RECOVER_IMEX_DOMAIN = Sentence("recover IMEX domain", "recover IMEX domain")
BUS_RESET = Sentence("bus reset", "bus reset")
SYSTEM_REBOOT = Sentence("system reboot", "system reboot")
OTHER_ACTION = Sentence("other-action", "action {number}")

SENTENCES: dict[str, Sentence] = {item.code: item for item in list(globals().values()) if isinstance(item, Sentence)}
"""By their codes."""


def say(plain: Any, notice: object = None) -> Said:
    """Return what another process says.

    Args:
        plain: `{"code": …, "values": …}` of one that has not this catalogue; else a text.
        notice: of the text.
    """
    if not isinstance(plain, dict):
        return recalled(str(plain), notice)
    sentence, values = SENTENCES.get(str(plain.get("code"))), plain.get("values")
    if sentence is not None and isinstance(values, dict):
        with_names = {str(name): value if isinstance(value, int) else str(value) for name, value in values.items()}
        if sentence.fits(with_names):
            return sentence(**with_names)
    return Said(str(plain.get("code")))
