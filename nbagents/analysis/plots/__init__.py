"""Plots of the run log: each returns its axes and draws into `ax=` if asked to."""

from nbagents.analysis.plots.cost import plot_cost
from nbagents.analysis.plots.latency import plot_latency
from nbagents.analysis.plots.timeline import plot_timeline
from nbagents.analysis.plots.tools import plot_tools
from nbagents.analysis.plots.usage import plot_usage

__all__ = ["plot_cost", "plot_latency", "plot_timeline", "plot_tools", "plot_usage"]
