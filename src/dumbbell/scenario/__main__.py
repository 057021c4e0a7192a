"""Write what is generated from the models: the JSON Schema and the reference."""

from pathlib import Path

from dumbbell.scenario.schema import reference, schema

Path("schemas/scenario.schema.json").write_bytes(schema())
Path("docs/scenario-reference.md").write_bytes(reference())
