#!/usr/bin/python
"""Modules of the running kernel, with parameters, and congestion controls for every user of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: kernel_modules
short_description: Have kernel modules and TCP congestion controls, and prove which build is loaded
description:
  - Loads modules that the kernel does not have yet, sets their parameters, and allows congestion controls to
    sockets of any user. Nothing is persistent.
  - A module whose loaded build is not the one in its file is loaded anew; while it is in use that fails. What
    is built into the kernel counts as loaded.
  - A module or control that this host neither has nor can load, and a parameter that a module does not have,
    are refused, naming what there is, before any change.
options:
  modules:
    description:
      - Modules to names and values of their parameters, which are read back. A parameter that can be given
        only when the module is loaded is set by loading it anew.
    type: dict
    default: {}
  congestion_controls:
    description: Congestion controls, as sockets name them. Their modules are loaded.
    type: list
    elements: str
    default: []
  allowed:
    description:
      - Exactly which controls unprivileged sockets may choose (net.ipv4.tcp_allowed_congestion_control). When
        empty, those of O(congestion_controls) are added to what is allowed.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author:
  - Dumbbell
"""

EXAMPLES = r"""
- name: Have what the flows use
  kernel_modules:
    modules: {tcp_cubic: {hystart: 0}, sch_fq: {}}
    congestion_controls: [cubic, bbr]
"""

RETURN = r"""
before:
  description: Controls available and allowed, and those modules asked for that are loaded, as found.
  returned: always
  type: dict
after:
  description:
    - The same as read back, or as it would be in check mode. The build id (the linker's note in the module
      that is loaded) identifies the very build; srcversion identifies its source, and is null for a kernel
      built without CONFIG_MODULE_SRCVERSION_ALL. Both are null for what is built into the kernel.
  returned: always
  type: dict
  sample:
    available: [reno, cubic, bbr]
    allowed: [reno, cubic, bbr]
    loaded:
      tcp_bbr: {srcversion: null, build_id: b161a4ee078eb9f8d913d176615bce559dc33738, parameters: {}}
      tcp_cubic: {srcversion: null, build_id: null, parameters: {hystart: "0"}}
commands:
  description: Commands executed, or to be executed in check mode; sysctls are written to their files.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_host import converge, run
from ansible.module_utils.dumbbell_modules import (
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
        # Loading allows controls that any socket may choose: what is left is known only now.
        for command in plan(asked, read(asked)):
            if command[0] != "sysctl":
                continue
            name, _, value = command[-1].partition("=")
            try:
                (SYSCTLS / "tcp_allowed_congestion_control").write_text(value)
            except OSError as error:  # of containers the kernel is their host's
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
