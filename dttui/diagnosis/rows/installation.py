"""What is installed, files that are missing, arguments and syntax."""

from __future__ import annotations

from dttui.diagnosis.advice import INSTALL, INSTALL_MODULE, NOT_SENT
from dttui.diagnosis.recogniser import Recogniser
from dttui.i18n import N_

ROWS: tuple[Recogniser, ...] = (
    # What is installed.
    Recogniser(
        "module-shadowed",
        N_("Module {module} was used before it was loaded: it is imported in a circle, or a file has its name."),
        (N_("Rename the script's own file that has a package's name, such as random.py; the traceback shows it."),),
        r"(?:AttributeError: (?:(?:partially initialized )?module|cannot access submodule '\w+' of module) "
        r"'(?P<module>[\w.]+)'"
        r"|ImportError: cannot import name '\w+' from partially initialized module '(?P<module2>[\w.]+)')"
        r"[^\n]*(?:circular import|renaming)",
    ),
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
        r"|cannot import name '\w+' from '[\w.]+'(?= \([^\n)]*(?:site|dist)-packages/))))",
    ),
    Recogniser(
        "missing-module",
        N_("{python} on {host} has no module {module}."),
        (INSTALL_MODULE,),
        r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)'?",
        r"^\S*python[\d.]*: No module named (?P<module>\S+)$",
    ),
    Recogniser(
        "import-error",
        N_("{path} on {host} has no {what} that could be imported."),
        (N_("Look at that file: whether {what} is there, and whether it is the file that was meant."),),
        r"ImportError: cannot import name '(?P<what>[^'\n]+)' from '[^'\n]*' "
        r"\((?P<path>(?![^\n]*(?:(?:site|dist)-packages|/lib/python3[^/\n]*)/)[^\n)]*\.py)\)",
    ),
    Recogniser(
        "import-error",
        N_("An import failed on {host}: {what}"),
        (INSTALL,),
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
        (NOT_SENT,),
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
        (NOT_SENT,),
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
        (N_("Correct {arguments}; the script's own --help says what it takes."),),
        None,
        r"^(?P<program>[\w.\-/]+): error: (?P<what>.+)",
        frozenset({2}),
    ),
    Recogniser(
        "arguments",
        N_("The script did not accept its arguments: {what}"),
        (N_("Correct {arguments}; the script's own --help says what it takes."),),
        None,
        r"^Error: (?P<what>(?:No such option|Missing option|Missing argument|Invalid value|Got unexpected extra).*)",
        frozenset({2}),
    ),
    Recogniser(
        "arguments",
        N_("The script did not accept its arguments: {what}"),
        (N_("Correct {arguments}; the script's own --help says what it takes."),),
        # Ultralytics, Hugging Face's parser with a command line or a file, and ms-swift's.
        r"(?:SyntaxError|ValueError): (?P<what>'[^'\n]+' is not a valid YOLO argument[^\n]*"
        r"|(?:Some (?:specified arguments|keys) are not used by the HfArgumentParser|remaining_argv): [^\n]+)",
    ),
    Recogniser(
        "syntax-error",
        N_("{python} cannot read the script: {what}"),
        (N_("Correct the line, or choose a Python new enough for it."),),
        r"(?:SyntaxError|IndentationError|TabError): (?P<what>[^\n]+ \([^()\n]+, line \d+\))",
    ),
)
