"""`python -m weir`: the command line."""

from __future__ import annotations

import argparse
import sys

from .build import BuildError, build


def main(arguments: list[str] | None = None) -> int:
    """Runs a command, and gives its exit status: 0 done, 1 failed; wrong usage exits with 2."""
    parser = argparse.ArgumentParser(prog="python -m weir", description="Weir functions in Python")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("build", help="make a component of an app")
    command.add_argument("app", help="a module and the name of an App or a handler in it, such as app:app")
    command.add_argument("-o", "--output", default="function.wasm", help="the component (default: function.wasm)")
    command.add_argument(
        "-p", "--path", action="append", help="a directory with the app or what it imports (default: the current one)"
    )
    given = parser.parse_args(arguments)
    try:
        print(build(given.app, given.output, given.path or ["."]))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
