"""The option `clock` of modules that wait for a synchronised clock."""

from __future__ import annotations


class ModuleDocFragment:
    """Ansible finds the fragment by this name."""

    DOCUMENTATION = r"""
options:
  clock:
    description: How the host's clock is read; the module waits until it is synchronised.
    type: dict
    suboptions:
      server:
        description: The host that the others follow.
        type: str
        required: true
      source:
        description: C(chrony), C(ptp), or C(shared) for hosts of one kernel.
        type: str
        required: true
      offset_max_ns:
        description: Largest offset.
        type: int
        required: true
      root_dispersion_max_ns:
        description: Largest root dispersion.
        type: int
        required: true
      timeout_s:
        description: Seconds to wait.
        type: int
        required: true
      cmdline:
        description: Kernel command line of the controller, for a clock that is shared with it.
        type: str
        required: true
"""
