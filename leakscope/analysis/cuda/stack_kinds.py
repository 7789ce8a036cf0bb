"""What a stack says about the memory it allocated: forward, backward, optimizer, workspace.

The innermost frame that is telling decides: an optimizer that calls a closure runs a forward pass
inside its step, and a module built inside a forward pass makes weights.
"""

from __future__ import annotations

import re
from functools import lru_cache

from leakscope.model.allocator import Frame, Stack
from leakscope.model.explanation import BlockClass

_LIBRARY = re.compile(
    r"(^|/)(site-packages|dist-packages|lib/python\d[\d.]*|lib64/python\d[\d.]*)/"
    r"|(^|/)torch/(_tensor|_ops|nn/|optim/|autograd/|utils/|_dynamo/|_inductor/|cuda/|distributed/)"
    r"|torchinductor_|^<(?!string|stdin|ipython|cell|eval)"
)
_WORKSPACES = ("getNewWorkspace", "CUDABlasLtWorkspace", "getCUDABlasLtWorkspace")
_MODULE = "torch/nn/modules/module.py"
_CALLS = {"_call_impl", "_wrapped_call_impl"}
_LOADS = {
    "_apply", "to", "cuda", "half", "bfloat16", "float", "double", "load_state_dict",
    "_load_from_state_dict",
}  # fmt: skip
_LOADERS = re.compile(
    r"^(from_pretrained|_load_pretrained_model|load_state_dict|load_weights?|init_weights?"
    r"|init_all_weights|reset_parameters|load_model|initialize_weights|_init_weights?)$"
)
_WEIGHT_FILES = ("torch/nn/parameter.py", "torch/nn/init.py", "safetensors/torch.py")
_BACKWARD_FILES = ("torch/autograd/__init__.py", "torch/autograd/graph.py", "torch/_tensor.py")
_OPTIMIZER_PATH = re.compile(r"(^|/)(optim|optimizers?|\w*_optimizers?|optim_\w+)(/|\.py$)")
_COMMUNICATION = re.compile(r"torch/(distributed/(?!fsdp|optim)|nn/parallel/distributed\.py)")


def kind_of(stack: Stack | None) -> BlockClass | None:
    """Return what a stack tells; None where there is no stack or nothing in it is telling."""
    return None if stack is None else _kind(stack)


def is_users(frame: Frame) -> bool:
    """Return whether a Python frame is in the user's own code rather than in a library's."""
    return not _is_library(frame.file.replace("\\", "/"))


@lru_cache(maxsize=10_000)
def _kind(stack: Stack) -> BlockClass | None:
    native = [frame.name for frame in stack.frames]
    if any(mark in name for name in native for mark in _WORKSPACES):
        return BlockClass.WORKSPACE
    for frame in stack.python:
        kind = _telling(frame.file.replace("\\", "/"), frame.name)
        if kind is not None:
            return kind
    if stack.forward or any("torch::autograd::Engine" in name for name in native):
        return BlockClass.BACKWARD
    return None


@lru_cache(maxsize=20_000)
def _telling(file: str, name: str) -> BlockClass | None:
    if file.endswith(_MODULE):
        if name in _CALLS:
            return BlockClass.ACTIVATIONS
        return BlockClass.WEIGHTS if name in _LOADS else None
    if file.endswith(_WEIGHT_FILES) or _LOADERS.match(name):
        return BlockClass.WEIGHTS
    if "torch/nn/modules/" in file and name == "__init__":
        return BlockClass.WEIGHTS
    if file.endswith(_BACKWARD_FILES) and "backward" in name:
        return BlockClass.BACKWARD
    if _OPTIMIZER_PATH.search(file):
        return BlockClass.OPTIMIZER
    if _COMMUNICATION.search(file):
        return BlockClass.COMMUNICATION
    return BlockClass.ACTIVATIONS if name == "forward" else None


@lru_cache(maxsize=20_000)
def _is_library(file: str) -> bool:
    return _LIBRARY.search(file) is not None
