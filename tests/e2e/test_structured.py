"""response_format: whatever the model would like to say, the output parses and validates."""

import json
from typing import Any

import jsonschema
import pytest
from openai import OpenAI
from pydantic import BaseModel

MODEL = "smollm2"

SCHEMAS: dict[str, dict[str, Any]] = {
    "flat": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 130}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "items": {
                    "type": "object",
                    "properties": {
                        "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{3}$"},
                        "count": {"type": "integer"},
                    },
                    "required": ["sku", "count"],
                    "additionalProperties": False,
                },
            },
            "status": {"enum": ["open", "closed"]},
        },
        "required": ["items", "status"],
        "additionalProperties": False,
    },
    "union": {
        "type": "object",
        "properties": {"value": {"anyOf": [{"type": "null"}, {"type": "number"}, {"type": "boolean"}]}},
        "required": ["value"],
        "additionalProperties": False,
    },
    "references": {
        "type": "object",
        "properties": {"left": {"$ref": "#/$defs/point"}, "right": {"$ref": "#/$defs/point"}},
        "required": ["left", "right"],
        "additionalProperties": False,
        "$defs": {
            "point": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x", "y"],
                "additionalProperties": False,
            }
        },
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_strict_schema_always_holds(acme: OpenAI, name: str, temperature: float) -> None:
    reply = acme.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": f"Make up a {name} record."}],
        response_format={
            "type": "json_schema",
            "json_schema": {"name": name, "strict": True, "schema": SCHEMAS[name]},
        },
        max_tokens=200,
        temperature=temperature,
        seed=3,
    )
    assert reply.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(reply.choices[0].message.content or ""), SCHEMAS[name])


@pytest.mark.parametrize("seed", range(3))
def test_json_object_always_parses(acme: OpenAI, seed: int) -> None:
    reply = acme.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Describe a cat as a JSON object."}],
        response_format={"type": "json_object"},
        max_tokens=80,
        temperature=1,
        seed=seed,
    )
    assert reply.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(reply.choices[0].message.content or ""), dict)


def test_the_parse_helper_of_the_sdk_gives_an_object(acme: OpenAI) -> None:
    class City(BaseModel):
        city: str
        country: str

    reply = acme.chat.completions.parse(
        model=MODEL,
        messages=[{"role": "user", "content": "Name a city."}],
        response_format=City,
        max_tokens=60,
        temperature=0,
    )
    assert isinstance(reply.choices[0].message.parsed, City)
