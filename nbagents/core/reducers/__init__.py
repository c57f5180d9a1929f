"""Reducers: what of a long conversation a request still brings. What is stored stays whole."""

from nbagents.core.reducers.base import Reducer, ReductionContext
from nbagents.core.reducers.cutting import SlidingWindowReducer, TokenBudgetReducer, TruncationReducer
from nbagents.core.reducers.results import ToolResultReducer
from nbagents.core.reducers.summary import SummarizationReducer

__all__ = [
    "Reducer",
    "ReductionContext",
    "SlidingWindowReducer",
    "SummarizationReducer",
    "TokenBudgetReducer",
    "ToolResultReducer",
    "TruncationReducer",
]
