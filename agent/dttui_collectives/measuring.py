"""What `dttui bench` runs, where this package is installed beside the agent."""

from __future__ import annotations

from dtagent.payload.collectives.measuring import main

if __name__ == "__main__":
    main()
