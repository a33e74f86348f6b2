"""The keys and values that a decoder keeps for the hypotheses of one beam."""

import torch

from earvoice.models.decoder_cache import DecoderCache


class BeamCache(DecoderCache):
    """Keys and values of a tree of tokens whose leaves are the beam.

    Every token is stored once; a mask says which of them each row of the beam descends from. So a
    choice of other rows changes the mask and copies no keys, and all rows of a beam are one
    product. Tokens that no row descends from any more are dropped when the room is used up.
    """

    def __init__(self, trunk: DecoderCache) -> None:
        """Start with one row, all of `trunk`, whose storage is taken over."""
        super().__init__(trunk.cross_keys, trunk.cross_values, trunk.buffer)
        self.length = self._position = trunk.length
        self._ancestors = torch.ones(
            1, trunk.length, dtype=torch.bool, device=trunk.cross_keys.device
        )

    @property
    def rows(self) -> int:
        """Number of hypotheses."""
        return self._ancestors.shape[0]

    @property
    def position(self) -> int:
        """Number of tokens in each hypothesis."""
        return self._position

    def select(self, rows: list[int]) -> None:
        """Go on with these rows, in this order; a row may come often or not at all."""
        index = torch.tensor(rows, device=self._ancestors.device)
        self._ancestors = self._ancestors[index]

    def reserve(self, count: int) -> None:
        """Make room for one more token a row; `count` must be their number."""
        capacity = self.buffer.shape[3]
        if self.length + count > capacity:
            self._drop_dead()
            # Else the room that dropping has made would soon be used up again.
            if 2 * (self.length + count) > capacity:
                self._grow(2 * capacity)
        own = torch.eye(count, dtype=torch.bool, device=self._ancestors.device)
        self.visible = torch.cat((self._ancestors, own), dim=1)

    def advance(self, count: int) -> None:
        """Count one token a row."""
        super().advance(count)
        self._position += 1
        if self.visible is not None:
            self._ancestors = self.visible

    def _drop_dead(self) -> None:
        live = self._ancestors.any(0).nonzero()[:, 0]
        self.buffer[:, :, :, : len(live)] = self.buffer[:, :, :, live]
        self._ancestors = self._ancestors[:, live]
        self.length = len(live)
