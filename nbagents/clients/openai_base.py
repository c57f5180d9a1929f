"""What the clients of an OpenAI endpoint share: the arguments that say where it is and which key opens it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from nbagents.clients.calls import R
from nbagents.clients.endpoints import Secret, TokenProvider, find_endpoint
from nbagents.clients.service import ModelClient, ServiceClient

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIClient(ServiceClient):
    """An endpoint of OpenAI, of Azure OpenAI or of a compatible server, whatever it is asked for.

    Args:
        key: the key, if one was given.
        base_url: where the server is.
        client: an `AsyncOpenAI`, or a function that makes one for each loop.
        azure_endpoint: the address of an Azure OpenAI resource.
        api_version: of Azure OpenAI.
        azure_ad_token_provider: what returns tokens for Azure OpenAI.
        settings: model, retries, timeout and limits, as of `ServiceClient`; at Azure the model is the deployment.

    Raises:
        ConfigurationError: no key, or arguments that do not fit.
    """

    package_settings: ClassVar[Mapping[str, Any]] = {"security": {"bearer_auth": True}}

    def __init__(
        self,
        key: Secret,
        *,
        base_url: str | None,
        client: AsyncOpenAI | Callable[[], AsyncOpenAI] | None,
        azure_endpoint: str | None,
        api_version: str | None,
        azure_ad_token_provider: TokenProvider | None,
        **settings: Any,
    ) -> None:
        address: dict[str, Any] = {
            "base_url": base_url,
            "client": client,
            "azure_endpoint": azure_endpoint,
            "api_version": api_version,
            "azure_ad_token_provider": azure_ad_token_provider,
        }
        super().__init__(find_endpoint(key, **address), address, **settings)


class OpenAIModelClient(OpenAIClient, ModelClient[R], Generic[R]):
    """A chat client on an OpenAI endpoint."""
