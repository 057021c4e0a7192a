"""The pure halves of Ansible's modules, importable without Ansible, and the dumps they are tested on."""

from pathlib import Path

from plugins.module_utils import dumbbell_baseline as baseline
from plugins.module_utils import dumbbell_clock as clock
from plugins.module_utils import dumbbell_cpu as cpu
from plugins.module_utils import dumbbell_ethtool as ethtool
from plugins.module_utils import dumbbell_host as host
from plugins.module_utils import dumbbell_link as link
from plugins.module_utils import dumbbell_modules as modules
from plugins.module_utils import dumbbell_packages as packages
from plugins.module_utils import dumbbell_preflight as preflight
from plugins.module_utils import dumbbell_provisioned as provisioned
from plugins.module_utils import dumbbell_reach as reach
from plugins.module_utils import dumbbell_restore as restore
from plugins.module_utils import dumbbell_state as state
from plugins.module_utils import dumbbell_sysctl as sysctl
from plugins.module_utils import dumbbell_tc as tc

FIXTURES = Path(__file__).parent / "fixtures"

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
