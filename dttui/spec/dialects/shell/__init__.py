"""Shell scripts, followed as far as they can be without running anything: what they would start, and with what.

Knows bash alone: no launcher and no job. tree-sitter parses; what words expand to is worked out here.
"""
