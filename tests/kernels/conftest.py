import torch
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # the first torch operation of a process takes seconds
settings.load_profile("untimed")
torch.set_num_threads(1)  # small tensors: a second thread costs more than it does
