"""What can go wrong with a model, before any sound is heard.

ModelError
├── ModelConfigError        a field of a model's configuration is unknown, missing or out of range
│   └── ModelFieldError     the same, told by the field's declaration
├── CheckpointError         a checkpoint is missing, damaged, hostile or too large for the machine
└── ModelInputError         audio, features or tokens that this model cannot take
"""

from earvoice.runtime.parameter import ParameterError


class ModelError(Exception):
    """Anything this package refuses; the message names the field, its value and what is allowed."""


class ModelConfigError(ModelError):
    """A configuration field is unknown, missing, of the wrong type or out of range."""


class ModelFieldError(ModelConfigError, ParameterError):
    """A configuration field is not what its declaration allows."""


class CheckpointError(ModelError):
    """A checkpoint's files are missing, damaged, hostile, contradictory, or too large to load."""


class ModelInputError(ModelError, ValueError):
    """Audio, features or tokens that this model cannot take."""
