import json

import pytest

from gateway.errors import ApiError, BadRequestError, UnauthorizedError, UpstreamError, envelope, from_worker


def test_the_envelope_is_openais() -> None:
    error = BadRequestError('Say "hi"\n.', param="messages[2].content", code="invalid_value")
    assert json.loads(envelope(error)) == {
        "error": {
            "message": 'Say "hi"\n.',
            "type": "invalid_request_error",
            "param": "messages[2].content",
            "code": "invalid_value",
        }
    }


def test_every_error_carries_its_status() -> None:
    assert [BadRequestError("x").status, UnauthorizedError().status, UpstreamError().status] == [400, 401, 502]
    assert ApiError(413, "x", type="t", headers={"connection": "close"}).headers == {"connection": "close"}


@pytest.mark.parametrize(
    ("code", "status", "client_code"),
    [
        ("bad_request", 400, "invalid_request"),
        ("context", 400, "context_length_exceeded"),
        ("grammar", 400, "invalid_schema"),
        ("overloaded", 503, "overloaded"),
        ("starting", 503, "starting"),
        ("internal", 502, "worker_failed"),
        ("unauthorized", 502, "worker_failed"),
    ],
)
def test_a_workers_error_becomes_the_clients(code: str, status: int, client_code: str) -> None:
    error = from_worker(code, "the worker's words", "n")
    assert (error.status, error.code) == (status, client_code)


def test_what_a_worker_says_of_its_insides_is_not_passed_on() -> None:
    assert "Traceback" not in envelope(from_worker("internal", "Traceback: /srv/model")).decode()
