"""The keys and values that a decoder keeps for one hypothesis."""

import torch

from earvoice.models.errors import ModelInputError

FIRST_CAPACITY_TOKENS = 64
"""Room for keys and values that a fresh cache has; it doubles when full."""


class DecoderCache:
    """Keys and values of one hypothesis over one utterance's states, for all layers.

    Attributes:
        visible: [rows, tokens] bool, which tokens each row of a step sees; None means all.
    """

    visible: torch.Tensor | None = None

    def __init__(
        self,
        cross_keys: torch.Tensor,
        cross_values: torch.Tensor,
        buffer: torch.Tensor | None = None,
    ) -> None:
        """Start empty.

        Args:
            cross_keys: [layers, heads, S, d_head] keys of the encoder states.
            cross_values: [layers, heads, S, d_head] values of the encoder states.
            buffer: [2, layers, heads, capacity, d_head] to keep the tokens' keys and values in;
                None takes a new one.
        """
        self.cross_keys = cross_keys
        self.cross_values = cross_values
        layers, heads, _, width = cross_keys.shape
        shape = (2, layers, heads, FIRST_CAPACITY_TOKENS, width)
        self._take(cross_keys.new_empty(shape) if buffer is None else buffer)
        self.length = 0

    @property
    def states(self) -> int:
        """Number of encoder states, S."""
        return self.cross_keys.shape[2]

    @property
    def rows(self) -> int:
        """Number of hypotheses, each read one token further by a step."""
        return 1

    @property
    def position(self) -> int:
        """Number of tokens in a hypothesis: the position of the next."""
        return self.length

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens; growing copies, so capacity doubles."""
        capacity = self.buffer.shape[3]
        if self.length + count > capacity:
            self._grow(max(2 * capacity, self.length + count))

    def extend(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one layer's keys and values, [heads, n, d_head], behind the counted tokens.

        Returns:
            Views of all keys and all values of that layer, [heads, length + n, d_head].
        """
        end = self.length + keys.shape[1]
        kept_keys, kept_values = self._rows[layer]
        kept_keys[:, self.length : end] = keys
        kept_values[:, self.length : end] = values
        return kept_keys[:, :end], kept_values[:, :end]

    def advance(self, count: int) -> None:
        """Count the tokens that every layer has written."""
        self.length += count

    def truncate(self, length: int) -> None:
        """Forget all tokens after the first `length` (rejected drafts).

        Raises:
            ModelInputError: the cache holds fewer tokens.
        """
        if not 0 <= length <= self.length:
            message = f"length is {length}; allowed: 0 to {self.length}"
            raise ModelInputError(message)
        self.length = length

    def _grow(self, capacity: int) -> None:
        grown = self.buffer.new_empty((*self.buffer.shape[:3], capacity, self.buffer.shape[4]))
        grown[:, :, :, : self.length] = self.buffer[:, :, :, : self.length]
        self._take(grown)

    def _take(self, buffer: torch.Tensor) -> None:
        """Use a buffer; each layer's part is a view that is made once, for many steps use it."""
        self.buffer = buffer
        self._rows = list(zip(buffer[0].unbind(), buffer[1].unbind(), strict=True))
