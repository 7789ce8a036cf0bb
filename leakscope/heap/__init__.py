"""The heap as a graph: walked, named, and answered as a census."""
