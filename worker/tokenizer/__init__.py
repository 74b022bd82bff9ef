"""A model's tokenizer: as tokenizer.json for the gateway, as bytes per token for decoding here.

owns            reading tokenizer, special tokens and chat template from GGUF metadata or a Hugging Face folder;
                the bytes that each token stands for
does not own    encoding and rendering, which the gateway does; the grammar's view of tokens
front door      Vocabulary, read_vocabulary

A tokenizer that we can't rebuild exactly is refused by name: a near one gives other ids, and quietly worse answers.
"""

from worker.tokenizer.gguf import read_metadata
from worker.tokenizer.hf import read_folder
from worker.tokenizer.vocabulary import Vocabulary
from worker.weights import GGUFWeights, HFFolder

__all__ = ["Vocabulary", "read_vocabulary"]


def read_vocabulary(weights: GGUFWeights | HFFolder) -> Vocabulary:
    """The vocabulary of a model; ModelError when its tokenizer is of a kind that we do not read."""
    size = weights.config.vocabulary
    if isinstance(weights, HFFolder):
        return read_folder(weights, size)
    return read_metadata(weights.file.metadata, size)
