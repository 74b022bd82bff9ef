"""The one error of loading a model."""


class ModelError(ValueError):
    """The model can't be loaded; the message says why and names the file, key, tensor or type."""
