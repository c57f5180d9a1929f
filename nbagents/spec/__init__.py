"""Agents as files: YAML, JSON or dicts become agents, and agents are written as files."""

from nbagents.spec.agents import AgentRegistry, load_agents, read_settings, validate_file
from nbagents.spec.faults import SpecError, SpecFault
from nbagents.spec.loading import LoadedAgents
from nbagents.spec.models import AgentSpec, ConfigSpec, EventsSpec, RuntimeSpec
from nbagents.spec.registry import AgentType, register_agent_type, register_client, register_pattern
from nbagents.spec.schema import spec_schema
from nbagents.spec.skills import LocalSkills

__all__ = [
    "AgentRegistry",
    "AgentSpec",
    "AgentType",
    "ConfigSpec",
    "EventsSpec",
    "LoadedAgents",
    "LocalSkills",
    "RuntimeSpec",
    "SpecError",
    "SpecFault",
    "load_agents",
    "read_settings",
    "register_agent_type",
    "register_client",
    "register_pattern",
    "spec_schema",
    "validate_file",
]
