"""What the objects of one row hold together, where some of them hang on others like a chain.

Each link of a chain, such as the blocks of ``itertools.tee``, retains all links behind it. Added up
link by link, what they hold would be more than there is.
"""

from __future__ import annotations

from msgspec.structs import replace

from leakscope.heap.graph import Group, Nodes


def held_by(nodes: Nodes, members: list[int]) -> list[Group]:
    """Return what the members hold, no byte twice: of a link what it holds, not the link itself.

    What another member retains by way of something else is left with that.
    """
    inside = set(members)
    tops = {member for member in members if not _is_retained_by(nodes, member, inside)}
    # By number: a metaclass of the program's may have a __hash__ of its own.
    kinds = {id(type(nodes.objects[top])) for top in tops}
    opened: dict[int, list[Group]] = {}
    for member in sorted(members):
        above = nodes.dominator[member]
        if member in tops:
            opened[member] = list(nodes.holds[member])
        elif above in opened and id(type(nodes.objects[member])) in kinds:
            rest = _without(opened[above], nodes, member)
            if rest is not None:
                opened[above] = rest
                opened[member] = list(nodes.holds[member])
    return [group for member in members if member in opened for group in opened[member]]


def _is_retained_by(nodes: Nodes, node: int, members: set[int]) -> bool:
    above = nodes.dominator[node]
    while above >= 0:
        if above in members:
            return True
        above = nodes.dominator[above]
    return False


def _without(groups: list[Group], nodes: Nodes, link: int) -> list[Group] | None:
    """Return the groups without a link, None where it isn't counted among them."""
    obj = nodes.objects[link]
    size = nodes.host_bytes[link] + sum(nodes.device_bytes[link].values())
    for place, group in enumerate(groups):
        if group.type is not type(obj) or group.bytes < size:
            continue
        unused = group.unused_bytes - sum(nodes.unused_bytes[link].values())
        left = replace(
            group,
            count=group.count - 1,
            bytes=group.bytes - size,
            samples=[sample for sample in group.samples if sample is not obj],
            unused_bytes=max(0, unused),
        )
        kept = [left] if left.count else []
        return [*groups[:place], *kept, *groups[place + 1 :]]
    return None
