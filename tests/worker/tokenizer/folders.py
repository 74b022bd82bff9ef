"""What Hugging Face folders say of text: a byte-level tokenizer, one of SentencePiece's kind, and their settings."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaTokenizer

SPECIALS = ["<|end|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
CONFIG = {"eos_token": "<|im_end|>", "bos_token": None, "chat_template": TEMPLATE}


def byte_level() -> Tokenizer:
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "th", "the"]
    vocabulary = {name: index for index, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    return tokenizer


def metaspace() -> Tokenizer:
    """As transformers 5 builds that of Llama 2 and Mistral."""
    names = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        "t",
        "h",
        "\u2581t",
        "\u2581th",
    ]
    vocabulary = {name: index for index, name in enumerate(names)}
    whole: Tokenizer = LlamaTokenizer(
        vocab=vocabulary, merges=[("\u2581", "t"), ("\u2581t", "h")], unk_token="<unk>"
    ).backend_tokenizer
    return whole
