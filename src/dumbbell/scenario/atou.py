"""Keys that a scenario may give atou's two ends: from ``atou.json``, which atou's own package writes."""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model, model_validator

from dumbbell.quantities import Strict

# What a plan says by other means: ports, addresses, the flow's end, what is recorded.
_PLANNED = ("host", "port", "debug", "maxtime")
_KEYS: dict[str, list[dict[str, Any]]] = json.loads(
    resources.files("dumbbell.scenario").joinpath("atou.json").read_text()
)
_DEFAULTS: dict[str, Any] = {key["name"]: key.get("default", "") for key in _KEYS["sender"]}
_MAX_SEGMENTS = 1_000_000  # they are one line, of which atou reads no more than 64 MiB
# Of a transfer: a plan gives its length as maxtime.
MAX_DURATION_NS: int = next(key["max"] for key in _KEYS["sender"] if key["name"] == "maxtime") * 10**9


def _once(segments: list[int]) -> list[int]:
    if len(set(segments)) < len(segments):
        raise ValueError("a segment is named twice")
    return segments


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


class _Ends(Strict):
    def words(self) -> dict[str, str]:
        """What was asked for, as lines of a configuration have it."""
        return {key: _word(value) for key, value in self.model_dump(exclude_none=True).items()}


class _Sender(_Ends):
    @model_validator(mode="after")
    def _agree(self) -> _Sender:
        """What the sender itself would refuse: ``Check`` of atou's configuration."""
        asked = self.words()

        def value(key: str) -> float:
            return float(asked.get(key, _DEFAULTS[key]))

        needs = dict.fromkeys(("fack", "rampdown", "prr", "reloss"), "sack") | {"vegas_floyd": "vegas"}
        for key, needed in needs.items():
            if value(key) and not value(needed):
                raise ValueError(f"{key}: 1 needs {needed}: 1")
        for small, large in (("initsegs", "rcvrwin"), ("alpha", "beta")):
            if value(small) > value(large):
                raise ValueError(f"{small} {value(small):g} is more than {large} {value(large):g}")
        for one, other in (("highspeed", "scalable"), ("prr", "rampdown")):
            if value(one) and value(other):
                raise ValueError(f"{one}: 1 and {other}: 1 exclude each other")
        last = max(getattr(self, "droplist", None) or [-1])
        if 0 < value("maxpkts") <= last:
            raise ValueError(f"droplist names {last}, but segments end before maxpkts {value('maxpkts'):g}")
        return self


def _type(key: dict[str, Any]) -> Any:
    bounds = Field(ge=key.get("min"), le=key.get("max"))
    match key["kind"]:
        case "integer":
            return Annotated[int, bounds]
        case "number":
            return Annotated[float, bounds]
        case "choice":
            return Literal[tuple(key["choices"])]
        case "segments":
            return Annotated[
                list[Annotated[int, Field(ge=0, lt=2**63)]],
                Field(min_length=1, max_length=_MAX_SEGMENTS),
                AfterValidator(_once),
            ]
    raise ValueError(f"{key['name']}: a key of kind {key['kind']} belongs to no scenario")


def _shown(key: dict[str, Any]) -> dict[str, Any]:
    """Its default in the schema; a key that is absent is left to atou."""
    if "default" not in key:
        return {}
    return {"default": key["default"] if key["kind"] == "choice" else json.loads(key["default"])}


def _model(name: str, base: type[_Ends], end: str, doc: str) -> Any:
    fields: dict[str, Any] = {
        key["name"]: (_type(key) | None, Field(default=None, json_schema_extra=_shown(key)))
        for key in _KEYS[end]
        if key["name"] not in _PLANNED
    }
    return create_model(name, __base__=base, __doc__=doc, **fields)


AtouSender = _model(
    "AtouSender",
    _Sender,
    "sender",
    "Keys of atou's sender, in its own words and units: [transports/atou](../transports/atou/README.md).",
)
AtouReceiver = _model(
    "AtouReceiver", _Ends, "receiver", "Keys of atou's receiver; `delack` is in ms, 0 acknowledges at once."
)
