"""The read side of jobs: their directories, events, logs, metrics and views."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.jobs.board import IGNORABLE as IGNORABLE
    from dttui.jobs.board import Board as Board
    from dttui.jobs.board import Changed as Changed
    from dttui.jobs.board import check_ignored as check_ignored
    from dttui.jobs.briefs import JobBriefs as JobBriefs
    from dttui.jobs.check_rows import board_widths as board_widths
    from dttui.jobs.check_rows import routes as routes
    from dttui.jobs.check_rows import shown_names as shown_names
    from dttui.jobs.check_rows import told_findings as told_findings
    from dttui.jobs.checks import Cell as Cell
    from dttui.jobs.checks import Check as Check
    from dttui.jobs.checks import CheckStatus as CheckStatus
    from dttui.jobs.checks import cell_text as cell_text
    from dttui.jobs.checks import cell_words as cell_words
    from dttui.jobs.checks import cells_to_data as cells_to_data
    from dttui.jobs.checks import check_name as check_name
    from dttui.jobs.checks import check_word as check_word
    from dttui.jobs.comparison import ComparedJob as ComparedJob
    from dttui.jobs.comparison import Comparison as Comparison
    from dttui.jobs.comparison import Contrast as Contrast
    from dttui.jobs.comparison import compare as compare
    from dttui.jobs.comparison import contrast as contrast
    from dttui.jobs.curves import Axis as Axis
    from dttui.jobs.curves import ChosenPlots as ChosenPlots
    from dttui.jobs.curves import Curve as Curve
    from dttui.jobs.curves import EarlierRun as EarlierRun
    from dttui.jobs.curves import smoothed as smoothed
    from dttui.jobs.curves import speed_of as speed_of
    from dttui.jobs.directory import HEARTBEAT_S as HEARTBEAT_S
    from dttui.jobs.directory import LAUNCHER as LAUNCHER
    from dttui.jobs.directory import JobDirectory as JobDirectory
    from dttui.jobs.directory import create as create
    from dttui.jobs.directory import slug as slug
    from dttui.jobs.event_log import hint_of as hint_of
    from dttui.jobs.event_log import message_of as message_of
    from dttui.jobs.event_log import read_events as read_events
    from dttui.jobs.event_text import EventWords as EventWords
    from dttui.jobs.event_text import event_words as event_words
    from dttui.jobs.figures import COMMUNICATION as COMMUNICATION
    from dttui.jobs.figures import Figure as Figure
    from dttui.jobs.figures import figure_names as figure_names
    from dttui.jobs.following import metric_event as metric_event
    from dttui.jobs.listing import JobBrief as JobBrief
    from dttui.jobs.listing import JobEntry as JobEntry
    from dttui.jobs.listing import JobSummary as JobSummary
    from dttui.jobs.listing import find as find
    from dttui.jobs.listing import find_open as find_open
    from dttui.jobs.listing import list_jobs as list_jobs
    from dttui.jobs.listing import summarize as summarize
    from dttui.jobs.log_following import LogFollower as LogFollower
    from dttui.jobs.log_following import LogLines as LogLines
    from dttui.jobs.log_following import in_time as in_time
    from dttui.jobs.log_following import left_out_text as left_out_text
    from dttui.jobs.log_following import shown_line as shown_line
    from dttui.jobs.log_following import watching as watching
    from dttui.jobs.log_following import whole_line as whole_line
    from dttui.jobs.log_pages import LogPages as LogPages
    from dttui.jobs.log_pages import RecentLines as RecentLines
    from dttui.jobs.log_pages import save_lines as save_lines
    from dttui.jobs.log_times import parse_since as parse_since
    from dttui.jobs.past import Moment as Moment
    from dttui.jobs.past import Past as Past
    from dttui.jobs.past import PastReading as PastReading
    from dttui.jobs.past import PastReport as PastReport
    from dttui.jobs.past import chosen as chosen
    from dttui.jobs.replay import PastFollower as PastFollower
    from dttui.jobs.replay import PastLogs as PastLogs
    from dttui.jobs.replay import ReplayClock as ReplayClock
    from dttui.jobs.view import Failure as Failure
    from dttui.jobs.view import JobView as JobView
    from dttui.jobs.view import NodeView as NodeView

__getattr__ = first_use(__name__)
