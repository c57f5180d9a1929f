"""The style sheet of transcripts, for the live widget and for standalone pages."""

from importlib.resources import files

CSS = (files("nbagents.render") / "style.css").read_text("utf-8")

PAGE_CSS = """
body { margin: 0; background: light-dark(#ffffff, #12161b); color: light-dark(#1f2328, #e6edf3); }
.nbagents { max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
"""
"""What a standalone page needs besides."""
