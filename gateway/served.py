"""A model as the gateway serves it: what its workers say of it, and how to render for it."""

import time
from dataclasses import dataclass, field

import msgspec

from gateway.render import Renderer
from gateway.worker_wire import ModelInfo


class Details(msgspec.Struct, frozen=True):
    """Our own addition to OpenAI's model object."""

    context_length: int
    template: str
    block_size: int
    dtype: str
    fingerprint: str


class ModelObject(msgspec.Struct, frozen=True):
    """OpenAI's model object; `created` is when this gateway first saw the model, seconds since 1970."""

    id: str
    created: int
    saltway: Details
    object: str = "model"
    owned_by: str = "saltway"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model name and fingerprint: workers that share both take the same token ids and the same namespaces."""

    info: ModelInfo
    renderer: Renderer
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def fingerprint(self) -> str:
        return self.info.fingerprint

    def describe(self) -> ModelObject:
        details = Details(
            context_length=self.info.context_length,
            template=self.renderer.template_name,
            block_size=self.info.block_size,
            dtype=self.info.kv_dtype,
            fingerprint=self.info.fingerprint,
        )
        return ModelObject(id=self.info.name, created=self.created, saltway=details)
