"""Parameters that keep themselves alive through their gradients: ``backward(create_graph=True)``.

Such a gradient has a graph, and the graph leads back to the parameter. The circle runs through C++,
where the collector sees nothing, so a model that is dropped with its gradients is never freed. Told
by parameters that only native code holds and that keep graphs; the line is looked for in the
recorded sources. May be confused with: a graph that an extension in C++ keeps on purpose.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from leakscope.analysis.case import Case
from leakscope.analysis.source import SourceIndex
from leakscope.analysis.source.program import own_nodes
from leakscope.model.census import CensusRow
from leakscope.model.report import Remedy
from leakscope.model.sizes import plural


@dataclass(frozen=True)
class GradientCycle:
    """What is said of parameters in such a circle."""

    title: str
    text: str
    remedy: Remedy
    fed_at: list[str]
    kind: str = "gradient_cycle"


def is_gradient_cycle(row: CensusRow) -> bool:
    """Return whether objects that only native code holds are parameters in such circles."""
    return row.type.endswith("Parameter") and row.graph_nodes > 0


def gradient_cycle(case: Case, row: CensusRow) -> GradientCycle:
    """Return what is known of the circle that these parameters are in."""
    lines = _lines(SourceIndex(case.recording.sources, case.run.manifest.project_root))
    where = f" {lines[0]} calls backward(create_graph=True)." if lines else ""
    return GradientCycle(
        title="Parameters and their gradients keep each other alive",
        text=(
            f"Their gradients' graphs ({plural(row.graph_nodes, 'autograd node')}) lead back to "
            f"them, a circle that gc.collect() can't free.{where}"
        ),
        remedy=Remedy(
            title="Use torch.autograd.grad instead of backward(create_graph=True)",
            text=(
                "torch.autograd.grad(loss, parameters, create_graph=True) returns the gradients "
                "and leaves none behind in .grad. Where backward() must stay, set every .grad to "
                "None once it was used: that opens the circle, and the graph goes."
            ),
        ),
        fed_at=lines,
    )


def _lines(sources: SourceIndex) -> list[str]:
    """Return the places that call ``backward`` with ``create_graph``."""
    found = [
        sources.location(statement.scope.module.file, node.lineno)
        for statement in sources.program.mentioning("backward")
        for node in own_nodes(statement.node)
        if isinstance(node, ast.Call) and _creates_graph(node)
    ]
    return list(dict.fromkeys(found))


def _creates_graph(call: ast.Call) -> bool:
    is_backward = isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    return is_backward and any(
        word.arg == "create_graph"
        and not (isinstance(word.value, ast.Constant) and not word.value.value)
        for word in call.keywords
    )
