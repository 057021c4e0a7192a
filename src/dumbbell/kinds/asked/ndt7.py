"""ndt7: tests of M-Lab's NDT, version 7, by ndt-server 0.25 and ndt7-client 0.10."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from dumbbell.kinds.asked.base import BaseFlow, Kind, PlannedFlow, Programs

NDT_NS = 10 * 10**9  # how long a test sends
_OTHER_LISTENERS = (
    *("ndt7_addr", "ndt5_addr", "ndt5_ws_addr", "ndt5_wss_addr", "health_addr"),
    "prometheusx.listen-address",
)


class NdtFlow(BaseFlow):
    """A test of M-Lab's Network Diagnostic Tool, version 7, by its own server and client.

    Of a download the server is on `from`, of an upload the client: data goes from `from` to `to`, as of all
    kinds, for 10 s. What the server has measured is kept with the run. It asks for BBR, and does without
    where the kernel has none. The kernel chooses the client's port.
    """

    kind: Literal["ndt7_download", "ndt7_upload"]

    @model_validator(mode="after")
    def _lasts(self) -> Self:
        if self.duration is not None:
            raise ValueError(f"an NDT test lasts {NDT_NS // 10**9} s: give it no duration")
        return self

    @property
    def lasts_ns(self) -> int:
        """The duration that the programs fix."""
        return NDT_NS

    @property
    def sampled(self) -> bool:
        """The test's connection is sampled."""
        return True

    def programs(self, flow: PlannedFlow) -> Programs:
        """The command lines of server and client."""
        return Programs(client=_client(flow), server=_server(flow))


def _server(flow: PlannedFlow) -> list[str]:
    """The server's command line. It writes its results below ``ndt7-FLOW`` in its working directory.

    The listeners that a test does not need are bound to addresses where nobody reaches them.
    """
    words = ["ndt-server", "-ndt7_addr_cleartext", _address(flow)]
    for listener in _OTHER_LISTENERS:  # the server cannot turn them off
        words += [f"-{listener}", "127.0.0.1:0"]
    return [*words, "-datadir", f"ndt7-{flow.name}", "-htmldir", ".", "-compress-results=false"]


def _client(flow: PlannedFlow) -> list[str]:
    """The client's command line. It prints its own and the server's measurements as lines of JSON."""
    other = "upload" if flow.kind == "ndt7_download" else "download"
    return ["ndt7-client", "-server", _address(flow), "-scheme", "ws", "-format", "json", f"-{other}=false"]


def _address(flow: PlannedFlow) -> str:
    host = f"[{flow.server}]" if ":" in flow.server else flow.server
    return f"{host}:{flow.server_port}"


KINDS = (
    Kind(
        "ndt7_download",
        NdtFlow,
        protocols=("tcp",),
        counted_by="tcp",
        server_sends=True,
        any_client_port=True,
    ),
    Kind("ndt7_upload", NdtFlow, protocols=("tcp",), counted_by="tcp", any_client_port=True),
)
