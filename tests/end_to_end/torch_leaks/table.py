"""What is true of each pair of programs here; bytes per unit each leak measures of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Leak:
    """What the report must say first about ``NAME_leaks.py``."""

    names: tuple[str, ...]
    """What the culprit may be called, or the finding's kind."""
    line: str
    """A part of the line that must stand among the first two that feed it."""
    units: tuple[str, ...]
    """The units in which its growth may be reported."""
    title: str
    """A part of the remedy's title."""
    diff: str = ""
    """A line that the remedy's diff must have; empty where no diff is safe."""
    graph: bool = False
    """Whether autograd graphs are what leaks."""


LEAKS = {
    "running_total": Leak(
        ("Meter.total",),
        "meter.total += F.cross_entropy",
        ("validation",),
        "not the tensor, to Meter.total",
        "+        meter.total += F.cross_entropy(model(x), y).detach()",
        graph=True,
    ),
    "loss_list": Leak(
        ("Trainer.drifts",),
        "self.drifts.append(drift)",
        ("step",),
        "Store drift.detach() in Trainer.drifts",
        "+        self.drifts.append(drift.detach())",
        graph=True,
    ),
    "validation_outputs": Leak(
        ("Evaluator.outputs",),
        "self.outputs.append(self.model(x))",
        ("validation",),
        "Store self.model(x).detach() in Evaluator.outputs",
        "+            self.outputs.append(self.model(x).detach())",
        graph=True,
    ),
    "hidden_state": Leak(
        ("Agent.memory",),
        "self.memory = self.cell(observation, self.memory)",
        ("step",),
        "Detach Agent.memory between",
        "+        self.memory = self.memory.detach()",
        graph=True,
    ),
    "metric_state": Leak(
        ("AverageError.predictions",),
        "self.predictions.append(predictions)",
        ("validation",),
        "Store predictions.detach() in AverageError.predictions",
        "+        self.predictions.append(predictions.detach())",
        graph=True,
    ),
    "retain_graph": Leak(
        ("main.history",),
        "history.append(loss)",
        ("step",),
        "Store loss.detach() in main.history",
        "+            history.append(loss.detach())",
        graph=True,
    ),
    "gradient_penalty": Leak(
        ("CriticTrainer.penalties",),
        "self.penalties.append(penalty)",
        ("step",),
        "Store penalty.detach() in CriticTrainer.penalties",
        "+        self.penalties.append(penalty.detach())",
        graph=True,
    ),
    "create_graph_cycle": Leak(
        ("gradient_cycle",),
        "backward(create_graph=True)",
        ("epoch", "step"),
        "Use torch.autograd.grad",
        graph=True,
    ),
    "ctx_attribute": Leak(
        ("main.losses",),
        "losses.append(loss)",
        ("step",),
        "Store loss.detach() in main.losses",
        "+            losses.append(loss.detach())",
        graph=True,
    ),
    "hooks": Leak(
        ("main.model[1]._forward_hooks",),
        "register_forward_hook(",
        ("epoch",),
        "Register the hook once, or remove it by its handle",
        "+        handle.remove()",
    ),
    "stored_activations": Leak(
        ("activations",),
        "activations[name].append(output.detach())",
        ("step",),
        "Keep the last activation of each layer in activations",
    ),
    "checkpoints": Leak(
        ("Trainer.snapshots",),
        "self.snapshots.append(copy.deepcopy",
        ("epoch",),
        "Keep one copy of the weights in Trainer.snapshots",
    ),
    "param_groups": Leak(
        ("main.optimizer.state", "main.optimizer"),
        "optimizer.add_param_group(",
        ("epoch",),
        "Add parameter groups once",
    ),
    "stored_exceptions": Leak(
        ("fit.skipped",),
        "skipped.append(error)",
        ("step", "epoch"),
        "Keep the text of the errors in fit.skipped",
    ),
    "views": Leak(
        ("Probe.features",),
        "self.features.append(hidden.detach()[0, 0])",
        ("step",),
        "Clone the slice",
        "+        self.features.append(hidden.detach()[0, 0].clone())",
    ),
    "growing_modules": Leak(
        ("Learner.heads", "main.model.heads"),
        "self.heads.append(nn.Linear(512, 512))",
        ("epoch",),
        "Create the modules of",
    ),
    "tensor_cache": Leak(
        ("Positions.cache",),
        "self.cache[key] = torch.sin(positions * rates)",
        ("step",),
        "Bound Positions.cache",
        "+            if len(self.cache) > 128:",
    ),
    "replay_buffer": Leak(
        ("Replay.transitions",),
        "self.transitions.append((state, action, reward, following))",
        ("step",),
        "Bound Replay.transitions",
        "+        self.transitions = deque(maxlen=1_000)",
    ),
    "gradient_log": Leak(
        ("GradientLog.by_step",),
        "self.by_step[step] = {",
        ("step",),
        "Keep the norms",
        "+            name: parameter.grad.norm().item()",
    ),
}
