"""A tokenizer of SmolLM2's kind (single digits, byte level, merges, ChatML control tokens), trained on a few lines."""

from functools import cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from gateway.render import RendererModel

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
BOS, EOS = 1, 2

SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As SmolLM2-135M-Instruct ships it; it ignores tools."""

_LINES = [
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "<|im_start|>system\nuser\nassistant\ntool_call tool_response name arguments",
    'The weather in Oslo is cold.\n\n  {"name": "get_weather", "arguments": {"city": "Oslo", "days": 12}}',
    "def main():\n    return 42\n\n\nÜber naïve café — 東京 🙂 well, well!  Two spaces.\tTab.",
]


@cache
def tokenizer_json() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_LINES * 4, trainer)
    return tokenizer.to_str()


@cache
def whole() -> Tokenizer:
    """The tokenizer as its library uses it: control tokens are found in the text."""
    return Tokenizer.from_str(tokenizer_json())


def renderer_model(template: str = SMOLLM2_TEMPLATE) -> RendererModel:
    return RendererModel(
        tokenizer=tokenizer_json(), chat_template=template, special_tokens=SPECIALS, bos_id=BOS, eos_id=EOS
    )
