"""The real model against an independent implementation on the same weights, and its cache against none.

reference   Hugging Face transformers' LlamaForCausalLM in float32, on weights that the `gguf` package dequantised
"""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from tests.worker.rig import Reply, Rig, ask, greedy
from worker.kv import PagedLayout
from worker.model import Model
from worker.rows import Row
from worker.tokenizer import Vocabulary, read_vocabulary
from worker.weights import open_weights

pytestmark = pytest.mark.timeout(1200)  # a minute alone; one that shares its cores with others may take many times that
TOLERANCE = 3e-4  # of a logit, of up to 31; measured 1.2e-4, and 5e-5 between the peer in float32 and in float64
QUESTIONS = [
    "What is the capital of Japan?",
    "Write a haiku about salt.",
    "List three primary colours.",
    "Explain photosynthesis in one sentence.",
    "What is 7 times 8?",
    "Translate 'good morning' into French.",
    "Who wrote Hamlet?",
    "Give me a word that rhymes with light.",
    "Why is the sky blue?",
    "Name a large ocean.",
    "def add(a, b):\n    return",
    '{"city": "Oslo", "temperature":',
    "The quick brown fox",
    "1, 2, 3, 4, 5,",
    "Die Hauptstadt von Deutschland ist",
    "日本の首都は",
    "SELECT name FROM users WHERE",
    "Dear Sir or Madam,",
    "🧂 is the emoji for",
    "It was a dark and stormy night",
]


@pytest.fixture(scope="module")
def model(real_path: Path) -> Model:
    return Model(open_weights(real_path), torch.float32)


@pytest.fixture(scope="module")
def vocabulary(real_path: Path) -> Vocabulary:
    return read_vocabulary(open_weights(real_path))


@pytest.fixture(scope="module")
def prompts(vocabulary: Vocabulary) -> list[list[int]]:
    """Chat turns of the questions, and those that are no questions as plain text to go on with."""
    tokenizer = Tokenizer.from_str(vocabulary.json)
    texts = [
        f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" if text.endswith(("?", ".")) else text
        for text in QUESTIONS
    ]
    return [tokenizer.encode(text).ids for text in texts]


@pytest.fixture(scope="module")
def peer(real_path: Path) -> LlamaForCausalLM:
    """Takes each tensor from the file by other code than ours; q and k rows go from adjacent pairs to half-split."""
    reader = gguf.GGUFReader(real_path)
    read = {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in reader.tensors}
    fields = {name: field.contents() for name, field in reader.fields.items() if name.startswith("llama.")}
    config = LlamaConfig(
        vocab_size=len(read["token_embd.weight"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        max_position_embeddings=fields["llama.context_length"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings=True,
    )
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    names = {
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    weights = {"model.embed_tokens.weight": read["token_embd.weight"], "model.norm.weight": read["output_norm.weight"]}
    for layer in range(config.num_hidden_layers):
        for ours, theirs in names.items():
            values = read[f"blk.{layer}.{ours}.weight"]
            weights[f"model.layers.{layer}.{theirs}.weight"] = values[_half_split_rows(values, heads.get(ours))]
    peer: LlamaForCausalLM = LlamaForCausalLM(config)
    tensors = {name: torch.from_numpy(np.array(values, dtype=np.float32)) for name, values in weights.items()}
    missing, unexpected = peer.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])  # tied to the embedding
    return peer


def _half_split_rows(values: np.ndarray, heads: int | None) -> list[int]:
    """Where each row of the peer's projection lies in the file's: pair i of a head is its rows 2i and 2i + 1 there."""
    if heads is None:
        return list(range(len(values)))
    size = len(values) // heads
    order = [2 * pair for pair in range(size // 2)] + [2 * pair + 1 for pair in range(size // 2)]
    return [head * size + row for head in range(heads) for row in order]


def logits_of(peer: LlamaForCausalLM, tokens: list[int]) -> Tensor:
    """[tokens, vocabulary]"""
    with torch.inference_mode():
        logits: Tensor = peer(torch.tensor([tokens])).logits[0]
    return logits


def rig_of(model: Model, vocabulary: Vocabulary) -> Rig:
    return Rig(model, vocabulary, slots=10, budget=128, blocks=800, max_waiting=200)


def answers(rig: Rig, prompts: list[list[int]], *, max_tokens: int, store: bool) -> list[Reply]:
    """Greedy replies; all prompts are queued at once, so that they run in batches of the slots."""
    replies = [rig.submit(ask(prompt, sampling=greedy(max_tokens), store=store)) for prompt in prompts]
    rig.run()
    rig.check_idle()
    return replies


def test_logits_and_greedy_tokens_are_those_of_the_peer(
    model: Model, vocabulary: Vocabulary, peer: LlamaForCausalLM, prompts: list[list[int]]
) -> None:
    """Each of our greedy tokens is the peer's best after the same tokens; so its greedy reply is ours, by induction."""
    rig = rig_of(model, vocabulary)
    for prompt, reply in zip(prompts, answers(rig, prompts, max_tokens=12, store=True), strict=True):
        tokens = [*prompt, *reply.tokens()]
        theirs = logits_of(peer, tokens)
        ours = model.forward(tokens, [Row(0, 0, len(tokens))], rig.memory.layout)[0]
        assert (ours - theirs[-1]).abs().max() < TOLERANCE
        assert theirs[len(prompt) - 1 : -1].argmax(-1).tolist() == reply.tokens()
        for logprob, row in zip(reply.logprobs(), theirs[len(prompt) - 1 :].log_softmax(-1), strict=False):
            assert logprob.logprob == pytest.approx(float(row[logprob.token]), abs=TOLERANCE)


def test_hit_is_miss_for_random_prompts_that_share_prefixes(model: Model, vocabulary: Vocabulary) -> None:
    draw = np.random.default_rng(50)
    stems = [draw.integers(17, 49_000, size).tolist() for size in (16, 40, 64)]
    prompts = [
        [*stems[number % 3][: draw.integers(16, 65)], *draw.integers(17, 49_000, draw.integers(8, 27)).tolist()]
        for number in range(50)
    ]
    cold = answers(rig_of(model, vocabulary), prompts, max_tokens=8, store=False)
    rig = rig_of(model, vocabulary)
    first = answers(rig, prompts, max_tokens=8, store=True)
    warm = answers(rig, prompts, max_tokens=8, store=True)
    assert all(reply.start.cached.device == 0 for reply in cold)
    assert [reply.start.cached.device for reply in warm] == [(len(prompt) - 1) // 8 * 8 for prompt in prompts]
    assert [reply.tokens() for reply in first] == [reply.tokens() for reply in cold]
    assert [reply.tokens() for reply in warm] == [reply.tokens() for reply in cold]
    for hit, miss in zip(warm, cold, strict=True):
        for one, other in zip(hit.logprobs(), miss.logprobs(), strict=True):
            assert one.logprob == pytest.approx(other.logprob, abs=TOLERANCE)


def test_over_pages_replies_are_those_over_slots(
    model: Model, vocabulary: Vocabulary, prompts: list[list[int]]
) -> None:
    """In a pool so small that sequences have to give way, and again by hits."""
    chosen = prompts[::3]
    expected = answers(rig_of(model, vocabulary), chosen, max_tokens=10, store=True)
    rig = Rig(model, vocabulary, slots=10, budget=128, blocks=16, max_waiting=200, layout=PagedLayout)
    for _ in range(2):
        found = answers(rig, chosen, max_tokens=10, store=True)
        assert [reply.tokens() for reply in found] == [reply.tokens() for reply in expected]
        for one, other in zip(found, expected, strict=True):
            for here, there in zip(one.logprobs(), other.logprobs(), strict=True):
                assert here.logprob == pytest.approx(there.logprob, abs=TOLERANCE)


def test_the_tokenizer_and_the_template_come_from_the_file(vocabulary: Vocabulary) -> None:
    tokenizer = Tokenizer.from_str(vocabulary.json)
    assert (len(vocabulary), vocabulary.control[vocabulary.eos_id]) == (49_152, "<|im_end|>")
    assert "<|im_start|>" in vocabulary.chat_template
    for text in [*QUESTIONS, "x = 1234567", "é🧂👩‍🚀 塩の道\r\n\t"]:
        ids = tokenizer.encode(text).ids
        assert b"".join(vocabulary.texts[token] for token in ids) == text.encode()
        assert tokenizer.decode(ids) == text
