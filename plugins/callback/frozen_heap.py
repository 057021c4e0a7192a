"""Keep the controller's heap out of its workers' garbage collection.

Ansible forks a worker for each task of each host. A collection in a worker writes to every object that it
looks at, so the kernel copies each page. In virtual time, where a page that is copied costs ten times as
much, that is a tenth of a run.
"""

from __future__ import annotations

DOCUMENTATION = """
name: frozen_heap
type: aggregate
author: Dumbbell (@dumbbell)
short_description: Make workers cheaper
description:
  - Objects that exist when a play starts are left out of later garbage collections.
"""

import gc
from typing import Any

from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    """Freezes the heap at the start of each play, when its tasks have been loaded."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "frozen_heap"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Freeze it."""
        gc.collect()
        gc.freeze()
