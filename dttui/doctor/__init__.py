"""What is wrong with the login node, hosts and what is between them, each with the command that mends it."""

from typing import TYPE_CHECKING

from dttui.lazy import first_use

if TYPE_CHECKING:
    from dttui.doctor.models import Checkup as Checkup
    from dttui.doctor.models import Remedy as Remedy
    from dttui.doctor.models import Site as Site
    from dttui.doctor.models import Trouble as Trouble

__getattr__ = first_use(__name__)
