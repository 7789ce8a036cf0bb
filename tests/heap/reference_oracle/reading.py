"""What an object refers to and owns, where the fallback doesn't see it."""

from __future__ import annotations

from leakscope.heap.adapters.buffers import Memory
from leakscope.heap.anatomy import mro
from leakscope.heap.reference.edges import EdgeReader, Payload
from reference_oracle.buffers import (
    arrow_memory,
    c_data_bytes,
    c_data_memory,
    canvas_bytes,
    is_of_arrow,
    text_buffer_bytes,
    text_pieces,
)


class FullReader(EdgeReader):
    """Reads Arrow, ``io.StringIO``, ctypes and canvases too."""

    def own_bytes(self, value: object) -> tuple[int, int]:
        shallow, data = super().own_bytes(value)
        if self._is_of(value, self.known.c_data):
            data = c_data_bytes(value)
        elif self._is_of(value, self.known.text_buffer):
            data = text_buffer_bytes(value)
        elif self._is_of(value, self.known.canvas):
            data = canvas_bytes(value)
        return shallow, data

    def exported_memory(self, value: object) -> tuple[int, int]:
        if type(value) is not Memory and self._is_of(value, self.known.c_data):
            return c_data_memory(value)
        return super().exported_memory(value)

    def referents(self, value: object, *, everything: bool) -> list[object]:
        found = super().referents(value, everything=everything)
        if self._is_of(value, self.known.text_buffer):
            found += text_pieces(value)
        elif self._is_plain(value) and is_of_arrow(mro(type(value)), self.known):
            found += arrow_memory(value, self.known)
        return found

    def _is_of(self, value: object, kind: type | None) -> bool:
        """Say whether an object is of a kind, by identity: no metaclass is called."""
        if kind is None or not self._is_plain(value):
            return False
        return any(base is kind for base in mro(type(value)))

    def _is_plain(self, value: object) -> bool:
        facts = self.facts(value)
        return facts.payload is Payload.NONE and not facts.tensor
