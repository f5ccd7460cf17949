"""Unmodified programs on urxe, for as long as asked, while all goes wrong that can: `make soak MINUTES=30`."""
