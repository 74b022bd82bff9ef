"""GET /v1/models: what can be asked for, for holders of a tenant's key."""

import msgspec
from starlette.routing import BaseRoute
from starlette.types import Scope, Send

from gateway.auth import Gate
from gateway.cluster import Cluster
from gateway.endpoint import get
from gateway.errors import NotFoundError
from gateway.reply import send_json
from gateway.served import ModelObject


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelObject]
    object: str = "list"


class Catalog:
    """OpenAI's model objects, each with what the gateway knows of it: context, template, block size, dtype."""

    def __init__(self, gate: Gate, cluster: Cluster) -> None:
        self._gate = gate
        self._cluster = cluster

    def routes(self) -> list[BaseRoute]:
        return [get("/v1/models", self.models), get("/v1/models/{name:path}", self.model)]

    async def models(self, scope: Scope, send: Send) -> None:
        await self._gate.tenant(scope)
        await send_json(send, ModelList([served.describe() for served in self._cluster.models()]))

    async def model(self, scope: Scope, send: Send) -> None:
        await self._gate.tenant(scope)
        name = scope["path_params"]["name"]
        for served in self._cluster.models():
            if served.name == name:
                return await send_json(send, served.describe())
        raise NotFoundError("There is no model of that name here.", param="model", code="model_not_found")
