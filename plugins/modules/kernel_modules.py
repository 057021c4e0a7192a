#!/usr/bin/python
"""Modules of the running kernel, with parameters, and congestion controls for every user of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kernel_modules
short_description: Load kernel modules and TCP congestion controls, and report which build is loaded
description:
  - Loads modules, sets their parameters, and allows congestion controls to sockets of any user. Nothing is
    persistent.
  - A module whose loaded build differs from its file is reloaded, which fails while it is in use. Modules
    that are built into the kernel count as loaded.
  - If the host cannot load a module or control, or a module does not have a parameter, the module fails
    before any change and lists the available ones.
options:
  modules:
    description:
      - Modules, each with its parameters, which are read back. A parameter that can only be set when the
        module is loaded is set by reloading it.
    type: dict
    default: {}
  congestion_controls:
    description: Congestion controls by the names that sockets use. Their modules are loaded.
    type: list
    elements: str
    default: []
  allowed:
    description:
      - All controls that unprivileged sockets may choose (net.ipv4.tcp_allowed_congestion_control). If
        empty, O(congestion_controls) are added to the allowed ones.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Whether check mode changes nothing and tells what would be changed.
  diff_mode:
    support: full
    description: Whether diff mode shows what differs.
author:
  - Dumbbell (@dumbbell)
"""

EXAMPLES = r"""
- name: Load the modules and controls of the flows
  dumbbell.testbed.kernel_modules:
    modules: {tcp_cubic: {hystart: 0}, sch_fq: {}}
    congestion_controls: [cubic, bbr]
"""

RETURN = r"""
before:
  description: Available and allowed controls, and the requested modules that are loaded, as found.
  returned: always
  type: dict
after:
  description:
    - The same as read back; in check mode as predicted. The build id (the linker's note in the loaded module)
      identifies the build; srcversion identifies its source, and is null for a kernel built without
      CONFIG_MODULE_SRCVERSION_ALL. Both are null for modules that are built into the kernel.
  returned: always
  type: dict
  sample:
    available: [reno, cubic, bbr]
    allowed: [reno, cubic, bbr]
    loaded:
      tcp_bbr: {srcversion: null, build_id: b161a4ee078eb9f8d913d176615bce559dc33738, parameters: {}}
      tcp_cubic: {srcversion: null, build_id: null, parameters: {hystart: "0"}}
commands:
  description: Executed or, in check mode, planned commands; sysctls are written to their files.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.dumbbell_host import converge, run
from ..module_utils.dumbbell_modules import (
    SYSCTLS,
    Asked,
    canonical,
    mismatches,
    plan,
    predict,
    read,
    read_aliases,
    refusals,
    report,
)


def main():
    module = AnsibleModule(
        argument_spec={
            "modules": {"type": "dict", "default": {}},
            "congestion_controls": {"type": "list", "elements": "str", "default": []},
            "allowed": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    asked = Asked(
        {
            name.replace("-", "_"): {key: canonical(value) for key, value in of.items()}
            for name, of in params["modules"].items()
        },
        list(dict.fromkeys([*params["congestion_controls"], *params["allowed"]])),
        params["allowed"] or None,
        read_aliases(),
    )

    def refuse_what_the_host_lacks(found, _commands):
        if refused := list(refusals(asked, found)):
            module.fail_json(msg="; ".join(refused))

    def allow():
        # Loading allows controls that any socket may choose, so the remaining commands are known only now.
        for command in plan(asked, read(asked)):
            if command[0] != "sysctl":
                continue
            name, _, value = command[-1].partition("=")
            try:
                (SYSCTLS / "tcp_allowed_congestion_control").write_text(value)
            except OSError as error:  # a container cannot set its host's kernel
                module.fail_json(msg=f"{name}: the kernel refuses {value!r}: {error.strerror}")

    def perform(command):
        if command[0] == "sysctl":
            allow()
        else:
            run(module, command)

    converge(
        module,
        read=lambda: read(asked),
        plan=lambda found: plan(asked, found),
        mismatches=lambda found: mismatches(asked, found),
        report=lambda found: report(asked, found),
        predict=lambda found: report(asked, predict(asked, found)),
        preflight=refuse_what_the_host_lacks,
        perform=perform,
    )


if __name__ == "__main__":
    main()
