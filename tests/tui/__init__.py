"""Tests of the TUI: the real app, driven by Textual's Pilot, over hosts and jobs that the tests write."""
