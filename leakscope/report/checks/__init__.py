"""A check for those who read it: people, GitHub, code scanning, test reports."""
