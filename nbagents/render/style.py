"""The style sheet of transcripts, for the live widget and for standalone pages."""

from importlib.resources import files

CSS = (files("nbagents.render") / "style.css").read_text("utf-8")
