"""Two runs compared: as the plain values of a page, and for the terminal."""
