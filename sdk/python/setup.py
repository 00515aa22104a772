"""Puts a copy of the repository's WIT into the package, which an installed one builds components with."""

import shutil
from pathlib import Path

from setuptools import setup

here = Path(__file__).resolve().parent
source = here.parent.parent / "wit"
if source.is_dir():
    shutil.copytree(source, here / "weir" / "wit", dirs_exist_ok=True)

setup()
