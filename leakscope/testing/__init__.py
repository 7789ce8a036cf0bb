"""Leaks found by tests: a scenario is repeated, and what grows with every round trip is named.

Nothing is imported here: pytest loads ``plugin`` in every run, also in those that never use it.
"""
