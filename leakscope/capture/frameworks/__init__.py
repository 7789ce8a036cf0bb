"""Frameworks whose own events tell phases and steps, one module each; none imports another's."""
