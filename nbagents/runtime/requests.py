"""`RunRequest`: what a run of the runtime is asked for, in one value that never changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError, model_validator

from nbagents.core import Message, RunBudget, normalize_messages
from nbagents.core.errors import ConfigurationError
from nbagents.core.messages import AgentRunInputs
from nbagents.runtime.results import Plain


def _as_messages(given: Any) -> tuple[Message, ...] | None:
    """Take what `Agent.run` takes, and messages as `Message.to_dict` writes them."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        given = [Message.from_dict(one) if isinstance(one, Mapping) else one for one in given]
    return tuple(normalize_messages(given))


def _as_dicts(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


class RunRequest(BaseModel):
    """One run: which agent, in which session, and what it is asked.

    Exactly one of `input_text` and `messages` is given. A field that does not exist is an error.

    Attributes:
        agent_id: the agent of the runtime that runs.
        session_id: the conversation that the run goes on with; one of the runtime, made when it is first named. A new
            one by default.
        input_text: what the user says.
        messages: what `Agent.run` takes instead: messages (as dicts too), content, answers to approval requests.
        run_id: the id of the run; generated for each run if it is not given. An id that a run has had is an error.
        parent_run_id: the run that this one is part of.
        metadata: JSON values that the log, `RunContext.metadata` and the result have.
        output_type: the type or JSON schema that the answer must fit; `final_output` is its value.
        budget: the limits of the run, instead of the agent's.
        deps: anything, for tools: `ToolContext.deps`. It is never written down.

    Raises:
        ConfigurationError: a field that does not exist or does not fit, naming it.

    Example:
        >>> RunRequest(agent_id="assistant", input_text="Hi", sesion_id="s1")
        Traceback (most recent call last):
        nbagents.core.errors.ConfigurationError: RunRequest has no field 'sesion_id'. Did you mean 'session_id'?
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    agent_id: str = Field(min_length=1)
    session_id: str | None = Field(default=None, min_length=1)
    input_text: str | None = None
    messages: Annotated[
        AgentRunInputs, PlainValidator(_as_messages), PlainSerializer(_as_dicts, when_used="json-unless-none")
    ] = Field(default=None, repr=False)
    run_id: str | None = Field(default=None, min_length=1, max_length=200)
    parent_run_id: str | None = Field(default=None, min_length=1, max_length=200)
    metadata: dict[str, Plain] = Field(default_factory=dict)
    output_type: Any = None
    budget: RunBudget | None = None
    deps: Any = Field(default=None, repr=False, exclude=True)

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, /, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise _misfit(error, type(self)) from None

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        if (self.input_text is None) == (self.messages is None):
            given = "both" if self.input_text is not None else "none"
            raise ValueError(f"give input_text or messages, not {given} of them")
        return self

    @property
    def inputs(self) -> AgentRunInputs:
        """What the agent is given."""
        return self.input_text if self.input_text is not None else self.messages


def _misfit(error: ValidationError, kind: type[BaseModel]) -> ConfigurationError:
    """Return one error of our tree that names every field that does not fit."""
    name, known = kind.__name__, list(kind.model_fields)
    faults, hint = [], None
    for detail in error.errors(include_url=False, include_input=False):
        place = ".".join(map(str, detail["loc"]))
        if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
            faults.append(f"{name} has no field {place!r}.")
            near = difflib.get_close_matches(place, known, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
        else:
            told = detail["msg"].removeprefix("Value error, ").rstrip(".")
            faults.append(f"{name}{f'.{place}' if place else ''}: {told}.")
    return ConfigurationError(" ".join(faults), hint=hint)
