"""Where the model computes."""

import torch

from worker.config import ConfigError
from worker.kv.layout import CPU


def device_of(choice: str) -> torch.device:
    """The device of the flag `--device`.

    choice   "cpu", "cuda", or "auto": CUDA where torch finds a device of it, else the CPU. Of several it is the one
             that torch calls current, which CUDA_VISIBLE_DEVICES decides
    errors   ConfigError for "cuda" where there is none
    """
    found = torch.cuda.is_available()
    if choice == "cpu" or (choice == "auto" and not found):
        return CPU
    if not found:
        built = "torch finds none" if torch.version.cuda else "this torch is built for the CPU alone"
        raise ConfigError(f"--device cuda needs a CUDA device, and {built}; use --device cpu or auto")
    return torch.device("cuda", torch.cuda.current_device())
