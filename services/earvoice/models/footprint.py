"""What a model takes of memory, known before it is read."""

from earvoice.models.errors import ModelTooLargeError

FLOAT32_BYTES = 4
WORKING_BYTES = 128 * 2**20
"""What loading and the first computations take beside the weights; 90 MiB were measured."""


def loading_bytes(file_bytes: int, parameters: int) -> int:
    """Most memory that is needed while a model is loaded.

    The float32 weights stand first beside the file they are read from, then beside those that are
    packed for computing.

    Args:
        file_bytes: size of the weights as stored.
        parameters: how many numbers the weights are.
    """
    weights = FLOAT32_BYTES * parameters
    return weights + max(file_bytes, weights) + WORKING_BYTES


def check_memory(name: str, needed_bytes: int, available_bytes: int | None) -> None:
    """Refuse a model that would not fit, before anything is read.

    Args:
        name: of the model, for the message.
        needed_bytes: see `loading_bytes`.
        available_bytes: what there is; None where the system does not say.

    Raises:
        ModelTooLargeError: naming both numbers.
    """
    if available_bytes is not None and needed_bytes > available_bytes:
        message = (
            f"model {name} needs {_mebibytes(needed_bytes)} to be loaded; "
            f"available: {_mebibytes(available_bytes)}"
        )
        raise ModelTooLargeError(message)


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"
