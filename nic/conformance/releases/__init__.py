"""Releases of urxe against the urxe that is built here: what both put on the wire, and take from it."""
