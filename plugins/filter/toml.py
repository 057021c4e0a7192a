"""Text in Telegraf's configuration."""

from __future__ import annotations

import json

from ansible.errors import AnsibleFilterError


def toml_string(text):
    """The text as a string of TOML. Telegraf replaces $NAME before it reads TOML, so the sign is escaped."""
    if "@{" in str(text):
        raise AnsibleFilterError(
            "Telegraf reads @{...} as a reference to a secret store: no name or password may have it"
        )
    return json.dumps(str(text), ensure_ascii=False).replace("$", r"\u0024").replace("\x7f", r"\u007f")


class FilterModule:
    """Ansible finds the filters by this name."""

    def filters(self):
        """Names in templates."""
        return {"toml_string": toml_string}
