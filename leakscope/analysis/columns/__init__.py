"""The data of a run as typed columns."""
