"""Arguments by name: those of a run in one list, and one error for a name that does not exist."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from nbagents.core.errors import ConfigurationError
from nbagents.core.options import OPTION_NAMES

if TYPE_CHECKING:
    from nbagents.core.budget import RunBudget
    from nbagents.core.middleware import Middleware
    from nbagents.core.run import OnMessage
    from nbagents.core.sessions import AgentSession

F = TypeVar("F", bound=Callable[..., Any])


class RunSettings(TypedDict, total=False):
    """What all ways to run an agent take besides messages and options; `Agent.run` says what each is for."""

    session: AgentSession | None
    tools: Iterable[Any] | Any | None
    budget: RunBudget | None
    arguments: Mapping[str, Any] | None
    middleware: Middleware | Iterable[Middleware] | None
    reducer: Any
    on_message: OnMessage | None
    client_kwargs: Mapping[str, Any] | None


def exact_arguments(settings: type | None = None) -> Callable[[F], F]:
    """Decorate a function: arguments that it does not take are a ConfigurationError that names the one that was meant.

    Args:
        settings: the TypedDict that its `**settings` unpack; its fields become part of the signature that people see.

    Example:
        >>> @exact_arguments()
        ... def greet(name): return f"Hello {name}"
        >>> greet(nane="Ada")
        Traceback (most recent call last):
        nbagents.core.errors.ConfigurationError: greet has no argument 'nane'. Did you mean 'name'?
    """

    def decorate(function: F) -> F:
        signature = _signature(function, settings)
        known = frozenset(signature.parameters)
        called = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if not known.issuperset(kwargs):
                unknown = next(name for name in kwargs if name not in known)
                args, kwargs = (), {}  # a traceback with variables must not show a key, here and below
                raise _unknown(called, unknown, signature)
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                misfit = _misfit(signature, args, kwargs) if isinstance(error, TypeError) else None
                args, kwargs = (), {}
                if misfit is None:
                    raise
                raise ConfigurationError(f"{called}: {misfit}.") from None

        checked.__signature__ = signature  # type: ignore[attr-defined]  # what `help` and editors of notebooks show
        return cast("F", checked)

    return decorate


def _signature(function: Callable[..., Any], settings: type | None) -> inspect.Signature:
    """The signature of `function`, with the fields of `settings` in the place of its `**` parameter."""
    signature = inspect.signature(function)
    if settings is None:
        return signature
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint.__forward_arg__)
        for name, hint in settings.__annotations__.items()
    ]
    return signature.replace(parameters=[*own, *more])


def _unknown(called: str, name: str, signature: inspect.Signature) -> ConfigurationError:
    takes = [known for known in signature.parameters if known != "self"]
    if name in OPTION_NAMES and "options" in takes:
        return ConfigurationError(f"{name!r} is an option of the model.", hint=f"Pass options={{{name!r}: ...}}.")
    near = difflib.get_close_matches(name, takes, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(takes)}."
    return ConfigurationError(f"{called} has no argument {name!r}.", hint=hint)


def _misfit(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Why the arguments do not fit `signature`; None if they do: then the TypeError came from inside."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return None
