"""The command line of rocelab: one module for each command, put together in `rocelab.cli.app`."""
