"""What the parts of a device's memory are called, and all of it in a line."""

from __future__ import annotations

from leakscope.analysis.components import NAMES
from leakscope.model.device import DeviceMemory, DeviceOwner
from leakscope.report.sizes import humane_bytes, humane_share

ROLES = NAMES | {
    "workspace": "workspaces of libraries",
    "private_pool": "private pools",
    "pending": "freed, still waited for",
    "unexplained": "unexplained",
}
TOLD = 3


def role_words(role: str) -> str:
    """Return what a component, or what the allocator alone tells, is called."""
    return ROLES.get(role, role.replace("_", " "))


def owner_words(owner: DeviceOwner) -> str:
    """Return the name of an owner; of what has none, what it is."""
    return owner.name or f"({role_words(owner.role)})"


def device_line(device: DeviceMemory) -> str:
    """Return ``cuda:0: 12 GiB live of 15 GiB reserved after step 40 of train: …``."""
    figures = device.figures
    told = [row for row in device.roles if row.role != "unexplained"][:TOLD]
    parts = [f"{role_words(row.role)} {humane_share(row.share)}" for row in told]
    parts.append(f"{humane_share(1.0 - device.explained_share)} unexplained")
    free = (
        f"{humane_bytes(figures.cached + figures.releasable)} cached, "
        f"{humane_bytes(figures.stuck - figures.releasable)} stuck in holes"
    )
    return (
        f"{device.device}: {humane_bytes(figures.active)} live of "
        f"{humane_bytes(figures.reserved)} reserved {device.moment}: {', '.join(parts)}; {free}"
    )
