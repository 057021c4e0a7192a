#!/usr/bin/python
"""TCP congestion controls available to every user of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: tcp_congestion
short_description: Make TCP congestion controls available, and prove which build is loaded
description:
  - Loads the modules of congestion controls that the kernel does not have yet, sets their parameters, and
    allows them to sockets of any user.
  - A control whose loaded build is not the one in its module's file is loaded anew; while it is in use
    that fails.
  - A control that this host neither has nor can load, and a parameter that a control does not have, are
    refused, naming what there is, before any change.
options:
  controls:
    description: Names of congestion controls, as sockets name them.
    type: list
    elements: str
    required: true
  parameters:
    description:
      - Control to names and values of its module's parameters. One that can be given only when the module is
        loaded is set by loading it anew.
    type: dict
    default: {}
  allowed:
    description:
      - Exactly which controls unprivileged sockets may choose (net.ipv4.tcp_allowed_congestion_control). When
        empty, those of O(controls) are added to what is allowed.
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
  tcp_congestion:
    controls: [cubic, bbr]
    parameters: {cubic: {hystart: 0}}
"""

RETURN = r"""
before:
  description: Controls available and allowed, and those asked for that are available, as found.
  returned: always
  type: dict
after:
  description:
    - The same as read back, or as it would be in check mode. The build id (the linker's note in the module
      that is loaded) identifies the very build; srcversion identifies its source, and is null for a kernel
      built without CONFIG_MODULE_SRCVERSION_ALL. Both are null for a control built into the kernel.
  returned: always
  type: dict
  sample:
    available: [reno, cubic, bbr]
    allowed: [reno, cubic, bbr]
    congestion_controls:
      bbr: {srcversion: null, build_id: b161a4ee078eb9f8d913d176615bce559dc33738, parameters: {}}
      cubic: {srcversion: null, build_id: null, parameters: {hystart: "0"}}
commands:
  description: Commands executed, or to be executed in check mode; sysctls are written to their files.
  returned: always
  type: list
  elements: str
"""

import gzip
import lzma
import os
import stat
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dumbbell_congestion import (
    Asked,
    Controls,
    Loaded,
    build_id,
    canonical,
    describe,
    loadable,
    mismatches,
    missing,
    plan,
    predict,
    report,
    unknown_parameters,
)
from ansible.module_utils.dumbbell_host import converge, run

SYSCTLS = Path("/proc/sys/net/ipv4")
UNPACK = {".ko": bytes, ".xz": lzma.decompress, ".gz": gzip.decompress}


def read_or(file, default):
    return file.read_bytes() if file.exists() else default


def loaded(name):
    module = Path(f"/sys/module/tcp_{name}")
    files = {file.name: file for file in (module / "parameters").glob("*")}
    values = {}
    for parameter, file in files.items():
        try:
            values[parameter] = file.read_text().strip()
        except OSError:  # it can only be written
            continue
    return Loaded(
        read_or(module / "srcversion", b"").decode().strip() or None,
        build_id(read_or(module / "notes/.note.gnu.build-id", b"")),
        values,
        frozenset(parameter for parameter, file in files.items() if not file.stat().st_mode & stat.S_IWUSR),
    )


def read(asked):
    available = (SYSCTLS / "tcp_available_congestion_control").read_text().split()
    allowed = (SYSCTLS / "tcp_allowed_congestion_control").read_text().split()
    folder = Path("/lib/modules", os.uname().release)
    modules = loadable(read_or(folder / "modules.dep", b"").decode())
    # A module compressed in a way that Python cannot read says nothing of itself.
    files = {name: folder / modules[name] for name in asked.controls if name in modules}
    return Controls(
        available,
        allowed,
        sorted(modules),
        {name: loaded(name) for name in asked.controls if name in available},
        {
            name: describe(UNPACK[file.suffix](file.read_bytes()))
            for name, file in files.items()
            if file.suffix in UNPACK
        },
    )


def main():
    module = AnsibleModule(
        argument_spec={
            "controls": {"type": "list", "elements": "str", "required": True},
            "parameters": {"type": "dict", "default": {}},
            "allowed": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    values = module.params["parameters"]
    asked = Asked(
        list(dict.fromkeys([*module.params["controls"], *values, *module.params["allowed"]])),
        {name: {key: canonical(value) for key, value in of.items()} for name, of in values.items()},
        module.params["allowed"] or None,
    )
    found = read(asked)
    lacking = missing(asked.controls, found)
    if lacking:
        names, had = ", ".join(lacking), ", ".join(sorted({*found.available, *found.loadable}))
        module.fail_json(msg=f"asked for congestion control {names}, which this host lacks; it has {had}")
    for name, (wrong, had) in unknown_parameters(asked, found).items():
        words = f"asked for parameter {', '.join(wrong)} of congestion control {name}"
        module.fail_json(msg=f"{words}, which lacks it; it has {', '.join(had) or 'none'}")

    def perform(command):
        if command[0] == "sysctl":
            (SYSCTLS / "tcp_allowed_congestion_control").write_text(command[-1].partition("=")[2])
        else:
            run(module, command)

    converge(
        module,
        read=lambda: read(asked),
        plan=lambda found: plan(asked, found),
        mismatches=lambda found: mismatches(asked, found),
        report=lambda found: report(asked, found),
        predict=lambda found: report(asked, predict(asked, found)),
        perform=perform,
    )


if __name__ == "__main__":
    main()
