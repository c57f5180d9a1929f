"""Filling variables of the notebook into a prompt: exact names only, once, never `str.format`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What only looks like a reference comes first and is passed over: \frac{a}{b}, ${a}, {{a}}.
_BRACES = re.compile(r"\\[A-Za-z]+(?:\{[^{}]*\})+|\$\{[^{}]*\}|\{\{[^{}]*\}\}|\{([^\W\d]\w*)\}")


def fill_variables(text: str, namespace: Mapping[str, Any]) -> str:
    """Return `text` with each `{name}` replaced by the value of the variable of exactly that name, as `str` shows it.

    All other braces stay, and values are not looked through again.

    Example:
        >>> fill_variables("{city} {In[3]} {unknown} {{city}}", {"city": "{Rome}"})
        '{Rome} {In[3]} {unknown} {{city}}'
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        return str(namespace[name]) if name is not None and name in namespace else match.group(0)

    return _BRACES.sub(value, text)
