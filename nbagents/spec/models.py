"""The fields of a spec: what a file may say of an agent, of its parts and of the runtime around it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    Tag,
    model_validator,
)

from nbagents.core.budget import RunBudget
from nbagents.spec.fields import InputSpec, OutputSpec, Part, as_list, is_schema

DEFAULT_TYPE = "chat_completion_agent"
DEFAULT_SKILLS = "skills"

Provider = Literal["openai", "azure", "anthropic", "local"]
Api = Literal["chat", "responses", "conversations", "messages"]


def _named(field: str, kind: type[Part]) -> BeforeValidator:
    """Take a text alone for the field of that name."""
    return BeforeValidator(
        lambda given: {field: given} if isinstance(given, str) else given, json_schema_input_type=str | kind
    )


TextOrTexts = BeforeValidator(as_list, json_schema_input_type=str | list[str])


class OptionsSpec(Part):
    """Defaults for every request, by their Chat Completions names."""

    model: str | None = None
    """Another model than the one of the connection."""
    temperature: int | float | None = None
    top_p: int | float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    """One text or several that end the reply."""
    seed: int | None = None
    tool_choice: str | dict[str, Any] | None = None
    """`auto`, `none`, `required`, or one function."""
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    """A JSON schema, or the option as services know it. `outputs` is the shorter way."""
    reasoning_effort: str | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    store: bool | None = None
    """Whether the service keeps the conversation."""
    logit_bias: dict[str, int | float] | None = None
    frequency_penalty: int | float | None = None
    presence_penalty: int | float | None = None
    _order: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_order(cls, given: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        made = build(given)
        if isinstance(given, dict):
            made._order = tuple(given)
        return made

    def to_options(self) -> dict[str, Any]:
        """Return the options that are set, in the order of the file: requests have them in that order too."""
        return {name: value for name in self._order if (value := getattr(self, name)) is not None}


class ConnectionSpec(Part):
    """Where the model is and how to get there. Unknown keys are kept, in `model_extra`, for types of your own."""

    model_config = ConfigDict(extra="allow")

    endpoint: str | None = Field(default=None, validation_alias=AliasChoices("endpoint", "base_url", "azure_endpoint"))
    """The address: of the API, usually ending in `/v1`, or of the resource at Azure."""
    api_key: SecretStr | None = None
    """The key, best as a placeholder such as `${OPENAI_API_KEY}`; by default the provider's usual variable."""
    api_key_env: str | None = None
    """The environment variable that has the key."""
    api_version: str | None = None
    """Of Azure OpenAI."""
    service_id: str | None = None
    """A client that the program has registered under this id, instead of all else."""
    max_retries: int | None = None
    """How often a request that failed is sent again."""
    retry_streams: bool | None = None
    """Send it again also when some of the reply was shown."""
    timeout: float | None = None
    """Seconds without a byte after which a request fails."""
    max_concurrency: int | None = None
    """Requests at once."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    streaming: bool | None = None
    """True or False for a server that can do only one of the two."""
    stores_by_default: bool | None = None
    """The service keeps the conversation itself."""
    replay_reasoning: bool | None = None
    """Send reasoning back with the calls of the same turn (Chat Completions)."""
    reasoning_summary: str | None = None
    """Ask for summaries of the model's reasoning (Responses)."""
    max_tokens: int | None = None
    """The most tokens of a reply where no option says it (Anthropic)."""
    thinking: dict[str, Any] | None = None
    """How the model thinks, in the service's words (Anthropic)."""
    cache: bool | Literal["5m", "1h"] | None = None
    """Have the service cache what a conversation begins with (Anthropic)."""


class ModelSpec(Part):
    """The model that answers. A text alone is its id."""

    id: str | None = None
    """The model's name; at Azure the deployment's."""
    provider: Provider | None = None
    """Who has it; `openai`, also for compatible servers, by default."""
    api: Api | None = None
    """Which of the provider's APIs is spoken; `chat` by default."""
    service_id: str | None = None
    """A client that the program has registered under this id, instead of a connection."""
    options: OptionsSpec = OptionsSpec()
    connection: ConnectionSpec = Field(default=ConnectionSpec(), repr=False)


class TemplateSpec(Part):
    """How the instructions are rendered with the inputs. A text alone is the format."""

    format: Literal["nbagents", "semantic-kernel", "jinja2", "none"] = "nbagents"
    """`nbagents` (`{{$name}}`; `semantic-kernel` is the same), `jinja2`, or `none` to send them as they are."""
    missing: Literal["error", "empty"] = "error"
    """What an input without a value is."""
    text: str | None = None
    """The instructions, if `instructions` has none."""


class ToolSpec(Part):
    """A tool that the agent may use. A text alone is its id."""

    id: str | None = None
    """Of a function: `Group.function` or its name among the tools that the program passes, or `package.module:function`
    where the program allows that module."""
    type: str = "function"
    """`function`, or a tool that the service runs: `web_search`, `code_interpreter`, `file_search`, `mcp`, ..."""
    description: str | None = None
    """What the model reads instead of the function's own description."""
    options: dict[str, Any] = Field(default={})
    """Of a function: `approval`, `timeout`, `strict`, `concurrency`. Of another tool: its settings, in the service's
    words."""


class MemorySpec(Part):
    """What a request leaves out of a long conversation; what is stored stays whole. A text alone is the type."""

    type: Literal["noop", "window", "token_budget", "summary", "truncation"]
    """`noop` leaves out nothing, `window` all but the last turns, `token_budget` and `truncation` the oldest messages;
    `summary` has the model sum them up."""
    max_turns: int | None = Field(default=None, ge=1)
    """Of `window`; 20 by default."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Of `token_budget` and `summary`; 8,000 by default."""
    max_messages: int | None = Field(default=None, ge=1)
    """Of `truncation`, 40 by default; of `summary`, instead of `max_tokens`."""
    keep: float | None = Field(default=None, gt=0, le=1)
    """The part of the limit that is left after a cut."""


class SessionSpec(Part):
    """Where conversations are stored. A text alone is the type."""

    type: Literal["in_memory", "jsonl_file", "sqlite"]
    """In the session itself, in a folder with a file for each, or in a database."""
    path: str | None = None
    """The folder (`sessions` by default) or the file of the database (`chat.db`), from the spec's folder."""


class PatternSpec(Part):
    """How the agent works. A text alone is the type."""

    model_config = ConfigDict(extra="allow")

    type: str
    """`react`: model and tools take turns until the model answers. The program may register others."""


class SkillsSpec(Part):
    """Folders with a `SKILL.md`: the model sees names and descriptions, and loads what it needs. Nothing is run."""

    type: Literal["local"] = "local"
    paths: Annotated[list[str], TextOrTexts] | None = None
    """Folders, from the spec's folder: skills, or folders of skills; `skills` by default, if there is one."""


class RuntimeSpec(Part):
    """The runtime around the agents. A text alone is the type."""

    type: Literal["default"] = "default"
    max_sessions: int | None = Field(default=None, ge=1)
    """How many sessions are remembered."""


class EventsSpec(Part):
    """The events of the runtime. A text alone is the type."""

    type: Literal["async"] = "async"


Memory = Annotated[MemorySpec, _named("type", MemorySpec)]
Session = Annotated[SessionSpec, _named("type", SessionSpec)]
Skills = Annotated[SkillsSpec, _named("type", SkillsSpec)]
Runtime = Annotated[RuntimeSpec, _named("type", RuntimeSpec)]
Events = Annotated[EventsSpec, _named("type", EventsSpec)]


Outputs = Annotated[
    Annotated[dict[str, OutputSpec], Tag("<fields>")] | Annotated[dict[str, Any], Tag("<schema>")],
    Discriminator(lambda given: "<schema>" if isinstance(given, dict) and is_schema(given) else "<fields>"),
]


class Surroundings(Part):
    """What a file with one agent and a file with several have in common."""

    session: Session | None = None
    """Where conversations are stored; in the session itself by default."""
    skills: Skills | None = None
    """What the model may look up."""
    runtime: Runtime = RuntimeSpec()
    """The runtime around it; an agent alone has none."""
    events: Events = EventsSpec()
    """The events of that runtime."""


class AgentSpec(Surroundings):
    """An agent as a file has it."""

    type: str = DEFAULT_TYPE
    """What kind of agent; the program may register others."""
    id: str | None = None
    """A stable id; the name by default."""
    name: str | None = None
    """What it is called in messages and tables; the id, or else `agent`, by default."""
    description: str | None = None
    """What it is for, for people and other agents."""
    instructions: str | None = None
    """The system message. Placeholders in it stay as they are unless the program wants them replaced."""
    template: Annotated[TemplateSpec, _named("format", TemplateSpec)] | None = None
    """How the instructions are rendered with the inputs."""
    model: Annotated[ModelSpec, _named("id", ModelSpec)] | None = None
    """The model that answers; without one it is what `default_client()` finds."""
    llm: Annotated[ModelSpec, _named("id", ModelSpec)] | None = None
    """Another word for `model`."""
    tools: list[Annotated[ToolSpec, _named("id", ToolSpec)]] | None = None
    """The tools that the agent may use: of those that the program passes, these and no others."""
    inputs: dict[str, InputSpec] = Field(default={})
    """Values that the instructions or the tools need."""
    outputs: Outputs = Field(default={})
    """The form of the answer: its fields, or the JSON schema of an object."""
    memory: Memory | None = None
    """What a request leaves out of a long conversation; nothing by default."""
    pattern: Annotated[PatternSpec, _named("type", PatternSpec)] | None = None
    """How the agent works; `react` by default."""
    budget: RunBudget | None = None
    """The limits of each run."""

    @model_validator(mode="after")
    def _one_model(self) -> AgentSpec:
        if self.model is not None and self.llm is not None:
            raise ValueError("model and llm are two words for one thing; keep one of them")
        body = self.template.text if self.template is not None else None
        if self.instructions is not None and body is not None:
            raise ValueError("instructions is the text, so template gives only the format; leave template.text out")
        return self

    @property
    def chosen_model(self) -> ModelSpec | None:
        """`model`, or `llm`."""
        return self.model or self.llm


class ConfigSpec(Surroundings):
    """Several agents, and what they share."""

    agents: list[dict[str, Any]] = Field(min_length=1)
    """The agents, each as a file of its own would have it; `session` and `skills` are for those without their own."""


def is_config(root: Any) -> bool:
    """Whether a tree is of several agents rather than of one."""
    return isinstance(root, dict) and "agents" in root


__all__ = [
    "AgentSpec",
    "ConfigSpec",
    "ConnectionSpec",
    "EventsSpec",
    "InputSpec",
    "MemorySpec",
    "ModelSpec",
    "OptionsSpec",
    "OutputSpec",
    "PatternSpec",
    "RuntimeSpec",
    "SessionSpec",
    "SkillsSpec",
    "TemplateSpec",
    "ToolSpec",
]
