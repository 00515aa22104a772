"""From an app to a component: what `python -m weir build` does, with componentize-py.

The app's module is imported while the component is built, and what is in memory then is in the component. A sandbox has no
files: what a function imports or reads has to be imported or read where its module is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

#: The module that the component is made of. It exports what the world wants, and hands each request to the app.
_ENTRY = """\
from weir import _host, _interface
from weir.app import app_of
from wit_world import exports

import {module}

_interface.use(_host.Wasi())
_app = app_of({module}.{attribute})


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request, response_out):
        _host.serve(_app, request, response_out)
"""
_ENTRY_NAME = "weir_entry"

#: Tells whether there is an app, in a process of its own: the app's module is run.
_CHECK = """\
import importlib, sys
from weir.app import app_of
module, attribute = sys.argv[1:]
try:
    loaded = importlib.import_module(module)
except ModuleNotFoundError as error:
    if error.name and (module == error.name or module.startswith(error.name + ".")):
        sys.exit(f"there is no module `{error.name}`")
    raise
try:
    app_of(getattr(loaded, attribute))
except AttributeError:
    sys.exit(f"the module `{module}` has no `{attribute}`")
except TypeError:
    sys.exit(f"`{module}:{attribute}` is neither an App nor a handler")
"""


class BuildError(Exception):
    """Why no component could be made."""


def build(app: str, output: str | Path, path: Sequence[str | Path] = (".",)) -> Path:
    """Makes the component `output` of `app`, such as `app:app`: a module, found in the directories `path`, and the name of an
    `App` or a handler in it. What goes wrong is a `BuildError`."""
    module, _, attribute = app.partition(":")
    attribute = attribute or "app"
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise BuildError(f"`{app}` is no module and name, such as `app:app`")
    here = Path(__file__).resolve().parent
    places = [str(Path(place).resolve()) for place in path] + [str(here.parent)]
    for place in places:
        if not os.path.isdir(place):
            raise BuildError(f"there is no directory {place}")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [*places, os.environ.get("PYTHONPATH")]))}
    _run([sys.executable, "-c", _CHECK, module, attribute], env, f"in {', '.join(places[:-1])}")
    output = Path(output)
    with tempfile.TemporaryDirectory() as made:
        Path(made, f"{_ENTRY_NAME}.py").write_text(_ENTRY.format(module=module, attribute=attribute))
        command = [sys.executable, "-c", "import componentize_py; componentize_py.script()", "-q"]
        command += ["-d", str(_wit(here)), "-w", "function", "componentize", _ENTRY_NAME, "-o", str(output)]
        for place in [made, *places]:
            command += ["-p", place]
        _run(command, env, "componentize-py failed")
    return output


def _wit(here: Path) -> Path:
    """The WIT of the world `function`: the repository's, or the copy that an installed package has."""
    for place in (here.parent.parent.parent / "wit", here / "wit"):
        if (place / "world.wit").is_file():
            return place
    raise BuildError(f"the package has no WIT: {here / 'wit'} is not there")


def _run(command: list[str], env: dict[str, str], what: str) -> None:
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 0:
        return
    said = done.stdout.strip()
    if "No module named 'componentize_py'" in said:
        raise BuildError("componentize-py is not installed: pip install componentize-py==0.25.1")
    raise BuildError(f"{said} ({what})")
