"""read_tcp, read_udp: flows of files that other tools wrote (docs/read.md). No scenario can ask for them."""

from __future__ import annotations

from dumbbell.kinds.asked.base import Kind

KINDS = (
    Kind("read_tcp", None, protocols=("tcp",), counted_by="tcp"),
    Kind("read_udp", None, protocols=("udp",), counted_by="udp"),
)
