"""What is found out before a component is made, and the command line."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from weir.__main__ import main
from weir.build import BuildError, build


class Builds(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.directory = Path(made.name)
        (self.directory / "some_app.py").write_text("from weir import App\napp, number = App(), 7\n")
        (self.directory / "needy_app.py").write_text("import some_package_that_is_not_there\n")

    def fails(self, app, path=None):
        with self.assertRaises(BuildError) as raised:
            build(app, self.directory / "out.wasm", [path or self.directory])
        self.assertFalse((self.directory / "out.wasm").exists())
        return str(raised.exception)

    def test_what_is_not_there_is_named(self):
        self.assertIn("there is no module `nowhere`", self.fails("nowhere:app"))
        self.assertIn("there is no module `nowhere`", self.fails("nowhere.app:app"))
        self.assertIn("the module `some_app` has no `other`", self.fails("some_app:other"))
        self.assertIn("`some_app:number` is neither an App nor a handler", self.fails("some_app:number"))
        self.assertIn("No module named 'some_package_that_is_not_there'", self.fails("needy_app"))
        self.assertIn("there is no directory", self.fails("some_app", self.directory / "nowhere"))

    def test_names_are_checked_before_anything_runs(self):
        for app in ("", ":", "a b:app", "some_app:app()", "../some_app:app"):
            self.assertIn("is no module and name", self.fails(app))

    def test_the_command_line_says_what_went_wrong(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = main(["build", "nowhere:app", "-p", str(self.directory), "-o", str(self.directory / "out.wasm")])
        self.assertEqual(status, 1)
        self.assertTrue(said.getvalue().startswith("error: there is no module `nowhere`"), said.getvalue())


if __name__ == "__main__":
    unittest.main()
