"""From messages and tools to the exact token ids of a prompt.

owns            chat templates (the model's own, or a declared one), safe masking, segment-wise tokenization
does not own    the meaning of messages (chat), block hashes (cacheplane.identity), generation
front door      Renderer, RendererModel, Rendered
"""

from gateway.render.renderer import Rendered, Renderer, RendererModel

__all__ = ["Rendered", "Renderer", "RendererModel"]
