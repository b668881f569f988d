"""Chat templates: compiled once, rendered in a sandbox as transformers does, with JSON that keeps number spellings."""


class TemplateError(ValueError):
    """The chat template refuses this conversation; the message is for the client (a 400)."""
