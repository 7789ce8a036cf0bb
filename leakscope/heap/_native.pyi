from types import FrameType
from typing import Any

from leakscope.heap.adapters.known_types import KnownTypes
from leakscope.heap.adapters.parts import Parts
from leakscope.heap.adapters.tensor import TensorAccess
from leakscope.heap.graph import WalkRequest

def walk(
    request: WalkRequest, access: TensorAccess | None, known: KnownTypes, parts: Parts
) -> dict[str, Any]: ...
def referent_addresses(container: object, most: int) -> list[int]: ...
def frame_locals(frame: FrameType) -> list[tuple[str, object]]: ...
def inline_attributes(value: object) -> dict[str, Any] | None: ...
def leak_shares(
    graph: object, groups: list[list[int]]
) -> list[tuple[list[int], list[int], list[int]]]: ...
