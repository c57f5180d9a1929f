"""Unique ids."""

from __future__ import annotations

import os
import random

_random = random.Random()  # of its own: seeding the global one must not bring ids back
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def new_id(kind: str) -> str:
    """Return a new unique id that begins with `kind`."""
    return f"{kind}_{_random.getrandbits(96):024x}"
