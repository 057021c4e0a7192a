"""A few cells of ``make fidelity`` in the lab."""

from __future__ import annotations

import pytest

from playbooks import ansible_playbook, unfolded

pytestmark = [pytest.mark.e2e, pytest.mark.fidelity]

ATTEMPTS = 3


def test_the_path_is_as_asked() -> None:
    """Once the machine has time for it: on a busy one timers are late, and the table says so."""
    for _ in range(ATTEMPTS):
        code, said = ansible_playbook(
            "playbooks/fidelity.yml", "-e", "only=^10mbit-(10ms-1%|10ms-duplicate|12ms)", timeout_s=600
        )
        if code == 0:
            break
    assert code == 0, said[-4000:]
    assert "6 of 6 measurements are within tolerance" in unfolded(said)
