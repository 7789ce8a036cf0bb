"""The verdict of a run: culprits, severity, what is cleared, and the first line."""
