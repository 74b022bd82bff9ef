"""SentencePiece's BPE, as GGUF files carry it: pieces with scores, and no merges.

SentencePiece merges the pair whose piece has the highest score, leftmost first. Ranking every pair of pieces by the
score of what it makes gives the same, as long as no two scores are equal: transformers converts such models so too.

source   sentencepiece's bpe_model.cc; the tokenizer.json of Llama 2 and Mistral
"""

from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, models, normalizers

from worker.weights import ModelError

SPACE = "\u2581"


def piece_tokenizer(
    names: list[str], scores: Sequence[float], plain: list[int], *, unknown: str, prefix: bool
) -> Tokenizer:
    """A tokenizer without its added tokens.

    plain    ids of the pieces that merges may make
    prefix   whether every stretch of text between control tokens is taken as if a space came before it
    errors   ModelError when two pieces have one score, so that nobody can say which is merged first
    """
    vocabulary = {name: index for index, name in enumerate(names)}
    merges = _merges(vocabulary, scores, [names[index] for index in plain])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    marks = [normalizers.Replace(" ", SPACE)]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), *marks] if prefix else marks)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _merges(vocabulary: dict[str, int], scores: Sequence[float], pieces: list[str]) -> list[tuple[str, str]]:
    ranked: list[tuple[float, int, int, str, str]] = []
    owner: dict[float, str] = {}
    for piece in pieces:
        halves = [(piece[:cut], piece[cut:]) for cut in range(1, len(piece))]
        pairs = [(left, right) for left, right in halves if left in vocabulary and right in vocabulary]
        score = scores[vocabulary[piece]]
        if pairs and owner.setdefault(score, piece) != piece:
            raise ModelError("tokenizer.ggml.scores ranks two pieces alike, so the order of merges is not known")
        ranked += [(-score, vocabulary[left], vocabulary[right], left, right) for left, right in pairs]
    return [(left, right) for *_, left, right in sorted(ranked)]
