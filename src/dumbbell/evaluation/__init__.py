"""Evaluate congestion controls by the field's criteria (docs/evaluation.md)."""


class EvaluationError(Exception):
    """An evaluation cannot begin or go on; the message says why, and what to do."""
