"""What a person wants to hear of while a job runs: patterns, metrics, states, and the program to tell it to."""
