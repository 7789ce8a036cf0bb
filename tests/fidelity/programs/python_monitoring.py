"""A tool of sys.monitoring lists the lines of a function; before 3.12 there is none."""

import sys

from driving import train

lines = []


def watched(model, x):
    total = 0
    for i in range(3):
        total += i
    return total


monitoring = getattr(sys, "monitoring", None)
if monitoring is not None:
    monitoring.use_tool_id(monitoring.PROFILER_ID, "test")
    monitoring.register_callback(
        monitoring.PROFILER_ID, monitoring.events.LINE, lambda code, line: lines.append(line)
    )
    monitoring.set_local_events(monitoring.PROFILER_ID, watched.__code__, monitoring.events.LINE)
train(in_epoch=watched)
print(lines, [monitoring.get_tool(i) for i in range(6)] if monitoring else "none")
