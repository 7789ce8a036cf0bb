"""The comparison page as plain values, a module for each part of it."""
