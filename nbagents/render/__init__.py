"""Markdown and transcripts as safe HTML, Markdown and text. It knows no widget and no kernel."""

from nbagents.render.markdown import render_markdown
from nbagents.render.stream import MarkdownStream
from nbagents.render.style import CSS
from nbagents.render.transcript import Transcript

__all__ = ["CSS", "MarkdownStream", "Transcript", "render_markdown"]
