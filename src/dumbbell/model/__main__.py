"""Write the JSON Schema of a scenario file."""

import sys
from pathlib import Path

from dumbbell.model import schema

target = Path(sys.argv[1] if len(sys.argv) > 1 else "schemas/scenario.schema.json")
target.write_bytes(schema())
