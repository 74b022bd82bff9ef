"""A model as it lies on disk, brought to one description and one naming.

owns            GGUF files, Hugging Face folders, quantised blocks, dimensions, rotary scaling, the check that nothing
                is missing and nothing is left over
does not own    the forward pass, how weights are packed for it, tokenizers and chat templates
front door      open_weights, Weights, ModelConfig, QuantBlocks, ModelError

Files are data: nothing in them is executed, every size is bounded, and what is not supported is refused by its name.
"""

from pathlib import Path

from worker.weights.blocks import QuantBlocks
from worker.weights.config import ModelConfig
from worker.weights.errors import ModelError
from worker.weights.fields import Fields
from worker.weights.gguf_file import GGUFFile
from worker.weights.gguf_weights import GGUFWeights
from worker.weights.hf_folder import HFFolder
from worker.weights.source import Tensors, Weights

__all__ = [
    "Fields",
    "GGUFFile",
    "GGUFWeights",
    "HFFolder",
    "ModelConfig",
    "ModelError",
    "QuantBlocks",
    "Tensors",
    "Weights",
    "open_weights",
]


def open_weights(path: Path) -> GGUFWeights | HFFolder:
    """The weights at a path: a folder is Hugging Face's, a file GGUF.

    ModelError when they can't be used, OSError when they can't be read.
    """
    return HFFolder(path) if path.is_dir() else GGUFWeights(path)
