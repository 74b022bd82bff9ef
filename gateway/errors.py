"""What can be wrong with a request, as values: made where the field is known, written as OpenAI's envelope here only.

Messages name fields, never what a client wrote into them, and never a key.
"""

from collections.abc import Mapping

import msgspec


class ApiError(Exception):
    """An answer that is not the one asked for.

    status    HTTP status
    message   one or two sentences for the client's developer
    type      OpenAI's family, such as "invalid_request_error"
    param     path of the offending field, such as "messages[2].content"
    code      stable, for programs
    headers   extra response headers, such as retry-after
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str,  # noqa: A002  # the envelope's own word
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})


class BadRequestError(ApiError):
    """400: the client must change the request."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(400, message, type="invalid_request_error", param=param, code=code)


class UnauthorizedError(ApiError):
    """401: no usable key. The same words for every reason, so that nothing can be probed."""

    def __init__(self, message: str = "A valid API key is required in the Authorization header.") -> None:
        headers = {"www-authenticate": "Bearer"}  # RFC 9110, 15.5.2
        super().__init__(401, message, type="invalid_request_error", code="invalid_api_key", headers=headers)


class ForbiddenError(ApiError):
    """403: a good key that may not do this."""

    def __init__(self, message: str, *, code: str = "forbidden") -> None:
        super().__init__(403, message, type="invalid_request_error", code=code)


class NotFoundError(ApiError):
    """404: no such route, model or object."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "not_found") -> None:
        super().__init__(404, message, type="invalid_request_error", param=param, code=code)


class TooLargeError(ApiError):
    """413: a body over the limit."""

    def __init__(self, message: str) -> None:
        super().__init__(413, message, type="invalid_request_error", code="request_too_large")


class UpstreamError(ApiError):
    """502: the worker failed, and not by the request's fault."""

    def __init__(self, message: str = "The worker failed to answer.", *, code: str = "worker_failed") -> None:
        super().__init__(502, message, type="server_error", code=code)


class UnavailableError(ApiError):
    """503: nobody can take the request now; worth a later try."""

    def __init__(self, message: str, *, code: str = "overloaded", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(503, message, type="server_error", code=code, headers=headers)


_OF_THE_REQUEST = {
    "bad_request": "invalid_request",
    "context": "context_length_exceeded",
    "grammar": "invalid_schema",
    "grammar_too_complex": "grammar_too_complex",
}


def is_of_the_request(code: str) -> bool:
    """Whether a worker's error says that the request itself is at fault, so that no other worker would take it."""
    return code in _OF_THE_REQUEST


def from_worker(code: str, message: str, param: str | None = None) -> ApiError:
    """A worker's own error, as the client should see it.

    Only what the worker says about the request itself is passed on; what it says about its insides is not.
    """
    if code in _OF_THE_REQUEST:
        return BadRequestError(message, param=param, code=_OF_THE_REQUEST[code])
    if code in {"overloaded", "starting"}:
        return UnavailableError("All workers are busy; try again shortly.", code=code, headers={"retry-after": "1"})
    return UpstreamError()


class _Body(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class _Envelope(msgspec.Struct):
    error: _Body


def envelope(error: ApiError) -> bytes:
    """OpenAI's error object, as JSON."""
    return msgspec.json.encode(_Envelope(_Body(error.message, error.type, error.param, error.code)))


DONE = b"data: [DONE]\n\n"


def last_events(error: ApiError) -> bytes:
    """The end of a stream of events that has failed: one frame with the error, which SDKs raise, and [DONE]."""
    return b"data: " + envelope(error) + b"\n\n" + DONE
