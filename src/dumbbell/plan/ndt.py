"""Tests of M-Lab's NDT: the programs of both ends, in the words of ndt-server 0.25 and ndt7-client 0.10."""

from __future__ import annotations

from dumbbell.plan.document import Flow

_OTHER_LISTENERS = (
    *("ndt7_addr", "ndt5_addr", "ndt5_ws_addr", "ndt5_wss_addr", "health_addr"),
    "prometheusx.listen-address",
)


def server(flow: Flow) -> list[str]:
    """It leaves its measurements below ``ndt7-FLOW`` where it is started, and listens for nothing else."""
    words = ["ndt-server", "-ndt7_addr_cleartext", _address(flow)]
    for listener in _OTHER_LISTENERS:  # none can be left out
        words += [f"-{listener}", "127.0.0.1:0"]
    return [*words, "-datadir", f"ndt7-{flow.name}", "-htmldir", ".", "-compress-results=false"]


def client(flow: Flow) -> list[str]:
    """It tells of its measurements and those of the server, a line of JSON each."""
    other = "upload" if flow.kind == "ndt7_download" else "download"
    return ["ndt7-client", "-server", _address(flow), "-scheme", "ws", "-format", "json", f"-{other}=false"]


def _address(flow: Flow) -> str:
    host = f"[{flow.server}]" if ":" in flow.server else flow.server
    return f"{host}:{flow.server_port}"
