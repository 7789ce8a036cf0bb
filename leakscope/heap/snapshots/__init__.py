"""The heap for a person to ask: taken once, kept as numbers and names."""
