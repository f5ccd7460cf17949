"""The matrix of unmodified programs that have to work on urxe, and the tests that run it."""
