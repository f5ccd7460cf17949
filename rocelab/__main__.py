"""The entry point: `rocelab`, or `python -m rocelab`."""

from __future__ import annotations

from rocelab.cli.app import app


def main() -> None:
    """Run the command line."""
    app(prog_name="rocelab")


if __name__ == "__main__":
    main()
