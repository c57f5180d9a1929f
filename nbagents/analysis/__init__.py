"""Runs as tables, plots and spans: views of the run log. What is heavy is imported when a function is called."""

from nbagents.analysis.expanding import expand
from nbagents.analysis.otel import disable_otel, enable_otel, export_otel
from nbagents.analysis.plots import plot_cost, plot_latency, plot_timeline, plot_tools, plot_usage
from nbagents.analysis.run_files import load_runs, save_runs
from nbagents.analysis.stores import use_store
from nbagents.analysis.table_files import read_table, write_table
from nbagents.analysis.tables import (
    artifacts_df,
    events_df,
    messages_df,
    requests_df,
    runs_df,
    tool_calls_df,
    usage_df,
)

__all__ = [
    "artifacts_df",
    "disable_otel",
    "enable_otel",
    "events_df",
    "expand",
    "export_otel",
    "load_runs",
    "messages_df",
    "plot_cost",
    "plot_latency",
    "plot_timeline",
    "plot_tools",
    "plot_usage",
    "read_table",
    "requests_df",
    "runs_df",
    "save_runs",
    "tool_calls_df",
    "usage_df",
    "use_store",
    "write_table",
]
