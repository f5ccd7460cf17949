"""urxe against the software RoCE device of a Linux kernel that runs beside it."""
