"""What every look at the heap asks: from which names, past what, with which classes marked."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from leakscope.heap.graph import WalkRequest
from leakscope.heap.roots import Roots


def request_from(roots: Roots, *, full: bool, own: Sequence[object] = ()) -> WalkRequest:
    """Return the request of a walk from ``roots``, to be refined by who asks.

    Args:
        roots: where names begin.
        full: walk libraries, native-held objects and garbage too.
        own: further objects of leakscope's that are no part of the program.

    """
    module_and_optimizer = _marked_types()
    return WalkRequest(
        roots=roots.objects(),
        library_from=roots.user_count if full else len(roots.named),
        full=full,
        hidden=[*roots.hidden, *own, roots],
        stages=roots.stages,
        marked_types=module_and_optimizer,
        late_types=(*module_and_optimizer[1:], functools._lru_cache_wrapper),
    )


def _marked_types() -> tuple[type, ...]:
    """Return torch's Module and Optimizer where the program has imported them."""
    found = []
    for module, name in (
        ("torch.nn.modules.module", "Module"),
        ("torch.optim.optimizer", "Optimizer"),
    ):
        cls = getattr(sys.modules.get(module), name, None)
        if cls is None:
            break
        found.append(cls)
    return tuple(found)
