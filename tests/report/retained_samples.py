"""Trees of what memory held, small enough to be known by heart."""

from __future__ import annotations

from leakscope.model.boundary import Boundary, BoundaryKind
from leakscope.model.census import CensusScope
from leakscope.model.run import NodeKind, Retained, RetainedCensus, RetainedNode, RetainedProcess

MIB = 1 << 20
NODES = [
    RetainedNode(kind=NodeKind.WHOLE),
    RetainedNode(kind=NodeKind.OWNER, parent=0, label="main()"),
    RetainedNode(
        kind=NodeKind.ROW, parent=1, label="trainer", name="main.trainer",
        path="main()·trainer", type="__main__.Trainer",
    ),
    RetainedNode(
        kind=NodeKind.ROW, parent=2, label="all_pred_boxes", name="Trainer.all_pred_boxes",
        path="main()·trainer.all_pred_boxes", type="list",
    ),
    RetainedNode(kind=NodeKind.CONTENT, parent=3, label="numpy.ndarray"),
    RetainedNode(
        kind=NodeKind.ROW, parent=2, label="model", name="Trainer.model",
        path="main()·trainer.model", type="__main__.Detector",
    ),
    RetainedNode(kind=NodeKind.GROUP, parent=0, label="libraries"),
    RetainedNode(kind=NodeKind.OWNER, parent=6, label="linecache"),
    RetainedNode(
        kind=NodeKind.ROW, parent=7, label="cache", name="linecache.cache",
        path="linecache·cache", type="dict",
    ),
    RetainedNode(kind=NodeKind.SMALLER, parent=2, count=40),
]  # fmt: skip
LIBRARIES = (6, 7, 8)
IN_WORKER = "worker()·dataset.decoded"


def census(
    epoch: int, boxes: int, *, whole: int, full: bool = False, model: int = 100, few: int = 5
) -> RetainedCensus:
    """What was held at the end of an epoch's validation, in MiB."""
    sizes = [whole, boxes + model + few + 3, boxes + model + few + 2, boxes, boxes - 1, model]
    sizes += [*([9, 8, 7] if full else [0, 0, 0]), few]
    column = [
        None if not full and place in LIBRARIES else size * MIB for place, size in enumerate(sizes)
    ]
    boundary = Boundary(
        index=100 * epoch, kind=BoundaryKind.PHASE_END, time_s=60.0 * epoch, phase="validation",
        occurrence=epoch, epoch=epoch, step=50 * epoch,
    )  # fmt: skip
    return RetainedCensus(
        boundary=boundary,
        scope=CensusScope.FULL if full else CensusScope.FOCUSED,
        cutoff_bytes=16384,
        bytes={"host": column},
    )


def retained() -> Retained:
    """A list that grew by 300 MiB from the second census to the last; the third is a full one."""
    censuses = [
        census(0, 10, whole=130),
        census(1, 100, whole=220),
        census(2, 200, whole=900, full=True),
        census(4, 400, whole=510, model=90),
    ]
    return Retained(nodes=NODES, censuses=censuses, taken=40, first=1, last=3, shown=3)


def compared() -> Retained:
    """The same list before and after it was emptied."""
    censuses = [census(4, 400, whole=530), census(4, 2, whole=130)]
    return Retained(nodes=NODES, censuses=censuses, taken=2, first=0, last=1, shown=1)


def of_worker(number: int = 1, grown: int = 60) -> Retained:
    """A worker's dict that grew by so many MiB over two of its passes."""
    nodes = [
        RetainedNode(kind=NodeKind.WHOLE),
        RetainedNode(kind=NodeKind.OWNER, parent=0, label="worker()"),
        RetainedNode(
            kind=NodeKind.ROW, parent=1, label="dataset", name="worker.dataset",
            path="worker()·dataset", type="__main__.Frames",
        ),
        RetainedNode(
            kind=NodeKind.ROW, parent=2, label="decoded", name="Frames.decoded",
            path=IN_WORKER, type="dict",
        ),
    ]  # fmt: skip
    censuses = [
        RetainedCensus(
            boundary=Boundary(
                index=16 * way, kind=BoundaryKind.PHASE_END, time_s=3.0 * way, phase="pass",
                occurrence=way, batch=16,
            ),
            scope=CensusScope.FOCUSED,
            cutoff_bytes=16384,
            bytes={"host": [(size + extra) * MIB for extra in (2, 1, 1, 0)]},
        )
        for way, size in ((0, 5), (1, 5 + grown // 2), (2, 5 + grown))
    ]  # fmt: skip
    return Retained(
        process=RetainedProcess(loader=1, worker=number, pid=100 + number),
        nodes=nodes, censuses=censuses, taken=3, first=0, last=2, shown=2,
    )  # fmt: skip
