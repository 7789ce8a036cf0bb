"""Lists of runs: read from their reports, on a page, in the terminal."""
