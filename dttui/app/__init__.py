"""The face: all that the clients, `cli` and `tui`, have done for a person. Values go in, and values come out.

Whatever acts is reached through `App`; the other names are of what it takes and gives.
"""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.app.caller import Caller as Caller
    from dttui.app.drafts import Begun as Begun
    from dttui.app.drafts import Drafts as Drafts
    from dttui.app.face import App as App
    from dttui.app.face import Submitted as Submitted
    from dttui.compose.bench_models import BenchReport as BenchReport
    from dttui.compose.bench_models import BenchRow as BenchRow
    from dttui.compose.bench_models import KeptBench as KeptBench
    from dttui.compose.bench_models import Regime as Regime
    from dttui.compose.templates import JOB_FILE as JOB_FILE
    from dttui.compose.templates import OWN_SCRIPT as OWN_SCRIPT
    from dttui.compose.templates import Template as Template
    from dttui.doctor.models import Checkup as Checkup
    from dttui.doctor.models import Site as Site
    from dttui.doctor.models import Trouble as Trouble
    from dttui.fetching.models import FetchedFile as FetchedFile
    from dttui.fetching.models import FileOutcome as FileOutcome
    from dttui.fetching.models import Listing as Listing
    from dttui.fetching.models import Progress as Progress
    from dttui.fetching.models import RemoteFile as RemoteFile
    from dttui.fetching.models import Report as Report
    from dttui.fleet.deployment.outcomes import AgentRemoval as AgentRemoval
    from dttui.fleet.deployment.outcomes import AgentStatus as AgentStatus
    from dttui.fleet.deployment.outcomes import Deployment as Deployment
    from dttui.fleet.deployment.outcomes import is_newer as is_newer
    from dttui.fleet.deployment.outcomes import outcome_notes as outcome_notes
    from dttui.fleet.deployment.outcomes import outcome_of as outcome_of
    from dttui.fleet.lines import JobInQueue as JobInQueue
    from dttui.fleet.lines import jobs_in_queue as jobs_in_queue
    from dttui.fleet.live import EnvironmentStatus as EnvironmentStatus
    from dttui.fleet.live import Fleet as Fleet
    from dttui.fleet.live import facts_of as facts_of
    from dttui.fleet.occupants import Occupant as Occupant
    from dttui.fleet.occupants import occupant_text as occupant_text
    from dttui.fleet.states import EnvironmentState as EnvironmentState
    from dttui.fleet.states import environment_state_name as environment_state_name
    from dttui.fleet.waiting import OnWait as OnWait
    from dttui.jobs.following import JobFollower as JobFollower
    from dttui.jobs.removal import RemovableJob as RemovableJob
    from dttui.launch.control import ControllerClient as ControllerClient
    from dttui.launch.starting import SpareController as SpareController
    from dttui.planning.cost.round_by_round import RoundByRound as RoundByRound
    from dttui.transport.base import Prompt as Prompt
    from dttui.transport.base import Prompter as Prompter
    from dttui.transport.base import PromptKind as PromptKind
    from dttui.transport.base import Transport as Transport

__getattr__ = first_use(__name__)
