"""What the agent and dttui both speak: frozen dataclasses and the framing. The lowest layer; standard library only."""
