"""What can go wrong with a model, before any sound is heard.

ModelError
├── ModelFieldError     a field of a model's configuration is unknown, missing or out of range
└── CheckpointError     a checkpoint is missing, damaged, hostile or too large for the machine
"""

from earvoice.runtime.parameter import ParameterError


class ModelError(Exception):
    """Anything this package refuses; the message names the field, its value and what is allowed."""


class ModelFieldError(ModelError, ParameterError):
    """A configuration field is not what its declaration allows."""


class CheckpointError(ModelError):
    """A checkpoint's files are missing, damaged, hostile, contradictory, or too large to load."""
