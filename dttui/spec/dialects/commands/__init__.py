"""ShellCommand lines of launchers, one within another as people write them: `srun … uv run torchrun … train.py`.

Each launcher is a row of `launchers.LAUNCHERS`: its options and what they say. Knows no shell and runs nothing.
"""
