"""Lets the tests import the scripts, which are no package: they run as they are, before anything is installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
