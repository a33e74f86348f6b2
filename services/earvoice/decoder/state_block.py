"""One revision of an utterance's encoder states, as it came over the wire."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from earvoice.runtime.errors import InvalidFieldError


class ElementType(IntEnum):
    """Number formats of a tensor's elements, by their numbers on the wire."""

    FLOAT32 = 1
    BFLOAT16 = 2
    FLOAT16 = 3

    @property
    def size_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is ElementType.FLOAT32 else 2


@dataclass(frozen=True, order=True, slots=True)
class StatesId:
    """Names one revision of one utterance's states."""

    utterance: int
    revision: int

    def __str__(self) -> str:
        return f"{self.utterance}.{self.revision}"


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class StateBlock:
    """State_count x dimension values, row-major, little-endian; what is computed of it is kept.

    Attributes:
        states_id: which revision this is.
        state_count: number of states S, 0 or more.
        dimension: values per state d.
        element_type: number format of the data.
        data: the values.
    """

    states_id: StatesId
    state_count: int
    dimension: int
    element_type: ElementType
    data: bytes

    def check(self, *, dimension: int, max_states: int) -> None:
        """Compare the block with what the model takes.

        Args:
            dimension: width of the model's states.
            max_states: most states that are taken.

        Raises:
            InvalidFieldError: naming the field, its value and what is allowed.
        """
        if self.states_id.utterance < 0:
            raise InvalidFieldError(
                "states.states_id.utterance", self.states_id.utterance, "0 or more"
            )
        if self.states_id.revision < 1:
            raise InvalidFieldError(
                "states.states_id.revision", self.states_id.revision, "1 or more"
            )
        if not 0 <= self.state_count <= max_states:
            raise InvalidFieldError("states.state_count", self.state_count, f"0 to {max_states}")
        if self.state_count and self.dimension != dimension:
            raise InvalidFieldError("states.dimension", self.dimension, str(dimension))
        expected_bytes = self.state_count * self.dimension * self.element_type.size_bytes
        if len(self.data) != expected_bytes:
            raise InvalidFieldError(
                "states.data", f"{len(self.data)} bytes", f"{expected_bytes} bytes"
            )
