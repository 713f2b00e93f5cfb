"""The terminal UI; the only place that imports Textual."""
