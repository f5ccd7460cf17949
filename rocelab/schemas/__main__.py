"""``python -m rocelab.schemas``: writes the schemas anew from the types in rocelab.results."""

import json
from pathlib import Path

from rocelab.results import SCHEMA_VERSION, sample_schema

target = Path(__file__).parent / f"sample.v{SCHEMA_VERSION}.json"
target.write_text(json.dumps(sample_schema(), indent=2) + "\n", encoding="utf-8")
