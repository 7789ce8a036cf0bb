"""Where boundaries come from, and what is measured at them without being noticed."""
