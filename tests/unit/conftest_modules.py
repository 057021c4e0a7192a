"""The pure halves of Ansible's modules, importable without Ansible, and the dumps they are tested on."""

import sys
from pathlib import Path

FIXTURES = Path(__file__).parent / "fixtures"
sys.path.append(str(Path(__file__).parents[2] / "plugins" / "module_utils"))

import dumbbell_congestion as congestion  # noqa: E402
import dumbbell_ethtool as ethtool  # noqa: E402
import dumbbell_host as host  # noqa: E402
import dumbbell_link as link  # noqa: E402
import dumbbell_sysctl as sysctl  # noqa: E402
import dumbbell_tc as tc  # noqa: E402

__all__ = ["FIXTURES", "congestion", "ethtool", "host", "link", "sysctl", "tc"]
