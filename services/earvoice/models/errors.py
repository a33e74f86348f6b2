"""What can go wrong with a model, before any sound is heard.

ModelError
├── ModelConfigError        a field of a model's configuration is unknown, missing or out of range
│   └── ModelFieldError     the same, told by the field's declaration
├── CheckpointError         a checkpoint's files are missing, damaged or contradict each other
│   ├── UnsafePickleError   a pickle asks for something that a checkpoint never needs
│   └── ModelTooLargeError  a model needs more memory than there is
├── VocabularyError         a vocabulary breaks the conventions that the networks rely on
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
    """A checkpoint's files are missing, damaged or contradict each other."""


class UnsafePickleError(CheckpointError):
    """A pickle asks for a class or function that no checkpoint needs; it was not executed."""


class ModelTooLargeError(CheckpointError):
    """A model needs more memory than there is."""


class VocabularyError(ModelError):
    """A vocabulary breaks the conventions that the networks rely on."""


class ModelInputError(ModelError, ValueError):
    """Audio, features or tokens that this model cannot take."""
