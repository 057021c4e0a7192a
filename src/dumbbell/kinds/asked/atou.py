"""atou: bulk transfers over UDP; the scenario configures the congestion control, which works as TCP's.

The keys of the sender and the receiver come from ``atou.json``, which atou's own package generates.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, create_model, model_validator

from dumbbell import units
from dumbbell.kinds.asked.base import BaseFlow, Given, Kind
from dumbbell.quantities import Strict

# Keys that the plan sets itself: ports, addresses, the flow's end, what is recorded.
_PLANNED = ("host", "port", "debug", "maxtime")
_KEYS: dict[str, list[dict[str, Any]]] = json.loads(
    resources.files("dumbbell.kinds.asked").joinpath("atou.json").read_text()
)
_DEFAULTS: dict[str, Any] = {key["name"]: key.get("default", "") for key in _KEYS["sender"]}
_MAX_SEGMENTS = 1_000_000  # they are one line, and atou reads at most 64 MiB
# The keys of a transfer; a plan gives the length of one as maxtime.
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
        """The values as they are written in a configuration file."""
        return {key: _word(value) for key, value in self.model_dump(exclude_none=True).items()}


class _Sender(_Ends):
    @model_validator(mode="after")
    def _agree(self) -> _Sender:
        """Refuse what the sender would refuse, like ``Check`` in atou's configuration package."""
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
    """The default that the schema shows; atou applies it when the key is absent."""
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


if TYPE_CHECKING:
    AtouSender = Any
    AtouReceiver = Any
else:
    AtouSender = _model(
        "AtouSender",
        _Sender,
        "sender",
        "Keys of atou's sender, in its own words and units: [transports/atou](../transports/atou/README.md).",
    )
    AtouReceiver = _model(
        "AtouReceiver",
        _Ends,
        "receiver",
        "Keys of atou's receiver; `delack` is in ms, 0 acknowledges at once.",
    )


class AtouFlow(BaseFlow):
    """Bulk transfer by atou: over UDP, with TCP's congestion control in the hands of the scenario.

    Its sender tells of itself what tcp_info tells of TCP. It ends with the flow, or after `maxpkts` segments.
    """

    kind: Literal["atou"]
    sender: AtouSender = Field(default_factory=AtouSender, description="default: all as atou has it")
    receiver: AtouReceiver = Field(
        default_factory=AtouReceiver,
        description="default: it acknowledges each segment at once, without SACK",
    )
    mode: Literal["precise", "bulk"] = Field(
        default="precise",
        description="precise: each segment leaves at its own time; bulk: those that may leave at once do so "
        "together, which takes less of the sender's processor",
    )
    trace: bool = Field(
        default=False, description="keep a line for each segment and each ACK, as the original atou did"
    )

    @model_validator(mode="after")
    def _ends_agree(self) -> Self:
        if self.sender.sack and not self.receiver.sack:  # the transfer would silently recover without SACK
            raise ValueError("sack: 1 of the sender needs sack: 1 of the receiver, which has sack: 0")
        return self

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.duration is not None and self.duration > MAX_DURATION_NS:
            most, asked = map(units.render_duration, (MAX_DURATION_NS, self.duration))
            raise ValueError(f"a transfer by atou lasts at most {most}, not {asked}")
        return self

    @model_validator(mode="after")
    def _gap_or_trains(self) -> Self:
        if self.mode == "bulk" and self.sender.words().get("gap", "0") != "0":
            raise ValueError("segments with a gap between them do not leave together: mode bulk has none")
        return self

    @property
    def round_trips(self) -> int:
        """The round trips of atou's handshake."""
        return 2

    @property
    def sampled(self) -> bool:
        """The sender reports its own state."""
        return True

    def planned(self, given: Given) -> dict[str, Any]:
        """The lines of the configuration files of both ends."""
        sender, receiver = self.sender.words(), self.receiver.words()
        return {"sender": sender, "receiver": receiver, "mode": self.mode, "trace": self.trace}


KINDS = (
    Kind(
        "atou",
        AtouFlow,
        protocols=("udp",),
        counted_by="tcp",
        server="atou_serve",
        client="atou_send",
        ends_sampled=("src_host",),
        follows_sockets=False,
    ),
)
