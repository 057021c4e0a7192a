"""What a host tells of its tools and hardware."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from playbooks import REPOSITORY

FACT = REPOSITORY / "roles" / "agent" / "files" / "dumbbell.fact"


def test_it_tells_what_is_there_and_is_silent_about_what_is_not(tmp_path: Path) -> None:
    tool = tmp_path / "tc"
    tool.write_text("#!/bin/sh\necho tc utility, iproute2-6.15.0, libbpf 1.1.2\n")
    tool.chmod(0o755)
    told = subprocess.run(
        [sys.executable, str(FACT)], capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)}
    )
    found = json.loads(told.stdout)
    assert found["versions"].get("iproute2") == "6.15.0"
    assert not {"iperf3", "ethtool"} & found["versions"].keys()
    assert found["hardware"]["processor"]
