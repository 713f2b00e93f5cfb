"""What training a transformer costs in memory and time, and which layout costs least. Pure arithmetic."""
