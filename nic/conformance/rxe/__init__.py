"""urxe against the software RDMA devices of a Linux kernel that runs beside it: rxe, and siw for iWARP."""
