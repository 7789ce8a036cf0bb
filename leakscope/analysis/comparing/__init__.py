"""What comparing two runs is made of: who is who, and whether the work was the same."""
