"""Runs as tables and plots: views of the run log. pandas and matplotlib are imported when a function is called."""

from nbagents.analysis.plots import plot_timeline, plot_usage
from nbagents.analysis.tables import events_df, messages_df, requests_df, runs_df, tool_calls_df, usage_df

__all__ = [
    "events_df",
    "messages_df",
    "plot_timeline",
    "plot_usage",
    "requests_df",
    "runs_df",
    "tool_calls_df",
    "usage_df",
]
