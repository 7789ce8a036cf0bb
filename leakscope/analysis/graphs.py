"""What the autograd graphs behind a culprit pin: nodes, and bytes per device.

The census says how many nodes a row keeps and how many bytes it retains; of tensors that lie in a
container their own values are taken off, for they would stay if the graph were cut. Nothing is said
of bytes where other things than tensors make up most of what is retained.
"""

from __future__ import annotations

import math
import re

from leakscope.model.census import CensusRow, Content
from leakscope.model.sizes import human_bytes, plural

_HOST = "host"
_MOSTLY = 0.5
_FORM = re.compile(r"(?P<type>[a-z]+\d*\w*) \((?P<shape>[\d, ]*)\) on (?P<device>[\w:]+)")


def pinned_bytes(row: CensusRow) -> dict[str, int]:
    """Return the bytes per device, ``host`` included, that would go if the graphs were cut."""
    if not row.graph_nodes:
        return {}
    retained = {_HOST: row.host_bytes, **row.device_bytes}
    for device, size in row.shared_bytes.items():
        retained[device] = retained.get(device, 0) + size
    if row.kind != "graph":
        tensors = [held for held in row.holds if held.type.endswith(("Tensor", "Parameter"))]
        if sum(held.bytes for held in tensors) < _MOSTLY * sum(retained.values()):
            return {}
        for held in tensors:
            device, own = _own_bytes(held)
            retained[device] = retained.get(device, 0) - own
    return {device: size for device, size in retained.items() if size > 0}


def _own_bytes(held: Content) -> tuple[str, int]:
    """Return the device of some tensors and the bytes of their values, by their commonest form."""
    form = _FORM.match(held.detail)
    if form is None:
        return _HOST, 0
    device = _HOST if form["device"] == "cpu" else form["device"]
    bits = re.search(r"\d+", form["type"])
    item = max(int(bits.group()) // 8, 1) if bits else 1
    sizes = [int(size) for size in form["shape"].split(",") if size.strip()]
    return device, held.count * item * math.prod(sizes)


def said_of_graphs(nodes: int, pinned: dict[str, int]) -> str:
    """Return ``It keeps 700 autograd nodes alive, which pin 19 MiB on the host.`` or nothing."""
    if not nodes:
        return ""
    places = [
        f"{human_bytes(size)} on {'the host' if device == _HOST else device}"
        for device, size in pinned.items()
    ]
    pins = f", which pin {' and '.join(places)}" if places else ""
    return f"It keeps {plural(nodes, 'autograd node')} alive{pins}."
