"""How text is cut before merging, by the names that GGUF files use.

source   tokenizer.json of the models that each name stands for; "default" is what llama.cpp does for that name
"""

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

from worker.weights import ModelError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """patterns        cut the text one after another; matches and what lies between them are pieces
    ignore_merges   whether a piece that is a token as a whole is that token, whatever merges would give
    composed        whether text is brought to Unicode's form C first
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    composed: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.composed else None


_BY_NAME = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "llama-bpe": PreTokenizer((_LLAMA3,), ignore_merges=True),
    "qwen2": PreTokenizer((_QWEN2,), composed=True),
    "tekken": PreTokenizer((_TEKKEN,), ignore_merges=True),
}
_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe", "deepseek-r1-qwen": "qwen2"}


def pre_tokenizer(name: str) -> PreTokenizer:
    """A name that we do not know is refused: a guess gives other token ids."""
    found = _BY_NAME.get(_ALIASES.get(name, name))
    if found is None:
        raise ModelError(f"pre-tokenizer {name!r} is not supported; {', '.join(_BY_NAME)} are")
    return found
