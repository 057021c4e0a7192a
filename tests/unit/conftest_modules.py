"""The pure halves of Ansible's modules, importable without Ansible, and the dumps they are tested on."""

import sys
from pathlib import Path

import ansible.module_utils

FIXTURES = Path(__file__).parent / "fixtures"
MODULE_UTILS = str(Path(__file__).parents[2] / "plugins" / "module_utils")
sys.path.append(MODULE_UTILS)
ansible.module_utils.__path__.append(MODULE_UTILS)  # by which they know each other

import dumbbell_baseline as baseline  # noqa: E402
import dumbbell_clock as clock  # noqa: E402
import dumbbell_cpu as cpu  # noqa: E402
import dumbbell_ethtool as ethtool  # noqa: E402
import dumbbell_host as host  # noqa: E402
import dumbbell_link as link  # noqa: E402
import dumbbell_modules as modules  # noqa: E402
import dumbbell_packages as packages  # noqa: E402
import dumbbell_preflight as preflight  # noqa: E402
import dumbbell_provisioned as provisioned  # noqa: E402
import dumbbell_reach as reach  # noqa: E402
import dumbbell_restore as restore  # noqa: E402
import dumbbell_state as state  # noqa: E402
import dumbbell_sysctl as sysctl  # noqa: E402
import dumbbell_tc as tc  # noqa: E402

__all__ = [
    "FIXTURES",
    "baseline",
    "clock",
    "cpu",
    "ethtool",
    "host",
    "link",
    "modules",
    "packages",
    "preflight",
    "provisioned",
    "reach",
    "restore",
    "state",
    "sysctl",
    "tc",
]
