"""The entry point: `rocelab`, or `python -m rocelab`."""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    try:
        # Loading takes long enough for the user to change their mind.
        from rocelab.cli.app import app  # noqa: PLC0415

        app(prog_name="rocelab")
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
