"""Generate the JSON Schema and the reference of the language from its models."""

from pathlib import Path

from dumbbell.scenario.schema import reference, schema

Path("schemas/scenario.schema.json").write_bytes(schema())
Path("docs/scenario-reference.md").write_bytes(reference())
