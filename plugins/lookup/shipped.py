"""Path of a file that comes with Dumbbell."""

from __future__ import annotations

DOCUMENTATION = """
name: shipped
author: Dumbbell (@dumbbell)
short_description: Path of a file that comes with Dumbbell
description:
  - A checkout of Dumbbell has these files, or else the Python package.
options:
  _terms:
    description: Relative paths, such as C(kernels/lab.yml). They need not exist.
    required: true
"""

EXAMPLES = """
- name: Say where a recipe of a kernel is
  ansible.builtin.debug:
    msg: "{{ lookup('dumbbell.testbed.shipped', 'kernels/lab.yml') }}"
"""

RETURN = """
_raw:
  description: The absolute paths.
  type: list
  elements: str
"""

from typing import Any

from ansible.plugins.lookup import LookupBase

from ansible_collections.dumbbell.testbed.plugins.plugin_utils.package import below


class LookupModule(LookupBase):
    """Ansible finds the lookup by this name."""

    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **_: Any) -> list[str]:
        """Absolute paths of relative ones."""
        return below("REPOSITORY", terms)
