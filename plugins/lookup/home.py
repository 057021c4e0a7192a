"""Path of a file that Dumbbell makes."""

from __future__ import annotations

DOCUMENTATION = """
name: home
author: Dumbbell (@dumbbell)
short_description: Path of a file that Dumbbell makes
description:
  - Builds, the virtual lab and results are in the checkout of Dumbbell. If Dumbbell is an installed package,
    they are in the directory in which Ansible was started.
options:
  _terms:
    description: Relative paths, such as C(.build/bin). They need not exist.
    required: true
"""

EXAMPLES = """
- name: Say where programs are built
  ansible.builtin.debug:
    msg: "{{ lookup('dumbbell.testbed.home', '.build/bin') }}"
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
        return below("HOME", terms)
