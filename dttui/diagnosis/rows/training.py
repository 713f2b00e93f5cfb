"""Numbers, checkpoints, services beside the training, and what the script itself says."""

from __future__ import annotations

from dttui.diagnosis.recogniser import Recogniser
from dttui.diagnosis.rows.patterns import GAP
from dttui.i18n import N_

ROWS: tuple[Recogniser, ...] = (
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
        rf"|[^\n]*\b(?:[Ll]oss(?:es)?|[Gg]rad\w*|norm|logits|activations?|LOSS)\b{GAP}"
        r"(?:\b(?:nan|NaN|NAN|inf|Inf)\b|not finite|non-?finite|infinite)[^\n]*"
        rf"|[^\n]*(?:\b(?:nan|NaN|NAN)\b|[Nn]on-?finite|not finite){GAP}\b(?:loss|grad\w*|norm|logits)\b[^\n]*))",
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
