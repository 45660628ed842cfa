"""A refusal: the one way in which anything here says no.

It carries what spec/README.md calls a failure: a status, a sentence, and where one byte is to
blame its offset. `extra` holds the further keys of an answer (`needed`, `rng`, `done`).
"""


class Refusal(Exception):
    def __init__(self, status, text, offset=None, **extra):
        super().__init__(text)
        self.status = status
        self.text = text
        self.offset = offset
        self.extra = extra


def need(condition, status, text, offset=None, **extra):
    """Refuses unless the condition holds."""
    if not condition:
        raise Refusal(status, text, offset, **extra)
