"""Every grammar output that ends by itself parses and validates: the gateway's gate and the worker's grammar together.

The model is noise, so whatever is right about the output the grammar has made right. Schemas are those of the Berkeley
Function Calling Leaderboard (bfcl-eval) and of the JSON-Schema-Test-Suite (in jsonschema's source distribution); the
judge is jsonschema, another implementation than the one that constrains.
"""

import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from gateway.schemas import Bounds, SchemaGate, check_output
from gateway.schemas.limits import SchemaError
from tests.worker.rig import ask
from tests.worker.tiny import write_tiny
from worker.grammar import GrammarCompiler, Landing
from worker.sequence import Job, Sequence
from worker.tokenizer import Vocabulary, read_vocabulary
from worker.weights import open_weights
from worker.wire import Delta, Finish, Frame, Sampling

SMALL = Bounds(string=8, items=2, properties=2, key=4, depth=1)
LEAST_CALLS = 500
# Java, Javascript and Python names that the leaderboard uses for JSON's types; None is any.
TYPES: dict[str, str | None] = {
    "dict": "object",
    "HashMap": "object",
    "float": "number",
    "double": "number",
    "long": "integer",
    "tuple": "array",
    "Array": "array",
    "ArrayList": "array",
    "String": "string",
    "char": "string",
    "Boolean": "boolean",
    "any": None,
}
KEYWORDS = """
    additionalProperties allOf anyOf boolean_schema const contains default dependentRequired dependentSchemas enum
    exclusiveMaximum exclusiveMinimum if-then-else infinite-loop-detection items maxItems maxLength maxProperties
    maximum minItems minLength minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems
    properties propertyNames ref required type unevaluatedItems unevaluatedProperties uniqueItems
""".split()  # noqa: SIM905


class Noise:
    """A model that knows nothing, behind the worker's grammars and the landing."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._compiler = GrammarCompiler(vocabulary)
        self._landing = Landing(vocabulary)

    def say(self, grammar: str, seed: int, most: int = 400) -> tuple[str, str]:
        """An output, and why it has ended."""
        frames: list[Frame] = []
        job = Job(
            ask([1], sampling=Sampling(max_tokens=most, seed=seed)), [self._compiler.compile(grammar)], frames.append
        )
        sequence = Sequence(job, 0, self._vocabulary, self._landing, context=4096)
        logits = np.random.default_rng(seed).normal(size=(64, len(self._vocabulary))).astype(np.float32)
        while not sequence.finished:
            sequence.advance(logits[sequence.generated % 64][None], [])
        assert isinstance(frames[-1], Finish)
        return "".join(frame.text for frame in frames if isinstance(frame, Delta)), frames[-1].reason

    def accepts(self, grammar: str, text: str) -> bool:
        """Whether a text, token by token for each byte, is a complete output."""
        made = self._compiler.compile(grammar)
        tokens = [self._vocabulary.texts.index(bytes([byte])) for byte in text.encode()]
        return all(made.accept(token) for token in tokens) and bool(made.allowed()[self._vocabulary.eos_id])


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Noise:
    return Noise(read_vocabulary(open_weights(write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf"))))


def admit(gate: SchemaGate, schema: dict[str, Any], *, strict: bool) -> str | SchemaError:
    """The schema's text for the grammar, or why there is none."""
    try:
        return gate.admit(schema, "schema", strict=strict, bounds=SMALL)
    except SchemaError as error:
        return error


def as_json_schema(node: Any) -> Any:
    """The leaderboard's own notation as a JSON Schema."""
    if isinstance(node, list):
        return [as_json_schema(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    found = {name: as_json_schema(value) for name, value in node.items() if name != "default"}
    kind = found.get("type")
    if isinstance(kind, str) and kind in TYPES:
        del found["type"]
        found |= {} if TYPES[kind] is None else {"type": TYPES[kind]}
    return found


def calls() -> list[dict[str, Any]]:
    """The parameters of all functions of the leaderboard, each once."""
    spec = find_spec("bfcl_eval")
    assert spec is not None
    assert spec.submodule_search_locations
    seen: set[str] = set()
    for path in sorted((Path(spec.submodule_search_locations[0]) / "data").glob("BFCL_v4_[lmps]*.json")):
        for line in path.read_text().splitlines():
            seen.update(json.dumps(as_json_schema(one["parameters"])) for one in json.loads(line).get("function", ()))
    return [json.loads(text) for text in sorted(seen)]


def test_arguments_of_the_leaderboards_functions_are_valid(noise: Noise) -> None:
    gate, schemas = SchemaGate(), calls()
    ended = refused = 0
    for number, schema in enumerate(schemas[:: len(schemas) // (LEAST_CALLS + 60)]):
        admitted = admit(gate, schema, strict=False)
        if isinstance(admitted, SchemaError):
            assert admitted.keyword is not None
            assert admitted.keyword in (admitted.param or "")
            refused += 1
            continue
        text, reason = noise.say(f"start: %json {admitted}", seed=number)
        if reason == "stop":
            ended += 1
            assert check_output(schema, text) is None, (schema, text)
    assert ended >= LEAST_CALLS
    assert refused < ended / 20


def suite(keyword: str) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """(schema, instances) of the suite's file for a keyword."""
    path = Path(sys.prefix) / "schemas" / "json" / "tests" / "draft2020-12" / f"{keyword}.json"
    for group in json.loads(path.read_text()):
        yield group["schema"], group["tests"]


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_a_keyword_is_enforced_or_refused_by_name(noise: Noise, keyword: str) -> None:
    gate = SchemaGate()
    for number, (schema, instances) in enumerate(suite(keyword)):
        if isinstance(schema, bool):
            continue
        admitted = admit(gate, schema, strict=True)
        if isinstance(admitted, SchemaError):
            assert (admitted.param or "").startswith("schema")
            continue
        grammar = f"start: %json {admitted}"
        for seed in range(2):
            text, reason = noise.say(grammar, seed=2 * number + seed)
            if reason == "stop":
                jsonschema.Draft202012Validator(schema).validate(json.loads(text))
        for instance in instances:
            spelled = json.dumps(instance["data"], ensure_ascii=False)
            assert instance["valid"] or not noise.accepts(grammar, spelled), (schema, spelled)
