"""OpenAI's chat completions dialect: a request body in, reply bytes out. Pure: no sockets, no clock.

owns            parsing and bounds of a body, the conversation's types, SSE frames and the plain reply
does not own    templates and ids (render), schemas and grammars, HTTP
front door      parse_chat, ChatRequest, ChatStream, ChatCollector
"""

from gateway.chat.reply import ChatCollector, ChatStream, ReplyHead
from gateway.chat.request import ChatRequest, parse_chat

__all__ = ["ChatCollector", "ChatRequest", "ChatStream", "ReplyHead", "parse_chat"]
