"""Accounts of memory: the ledger, components, phases and the facts of a run."""
