"""The browser side as text: shared code joined to a widget's own module, and the style sheets."""

from __future__ import annotations

from importlib.resources import files

from nbagents.render import CSS

_STATIC = files("nbagents.widgets") / "static"


def module(name: str) -> str:
    """Return `base.js` and the module `name`.js as one ES module."""
    return "\n".join((_STATIC / f"{part}.js").read_text("utf-8") for part in ("base", name))


def styles() -> str:
    """Return the style sheet of transcripts and that of the widgets around them."""
    return f"{CSS}\n{(_STATIC / 'widgets.css').read_text('utf-8')}"
