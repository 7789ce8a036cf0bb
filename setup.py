"""Builds what is native where there is a compiler; the package installs without it too.

``LEAKSCOPE_PURE=1`` leaves it out: the wheel then fits every platform.
"""

import os
import platform
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup


def can_build() -> bool:
    """Return whether the C sources are written for this interpreter and its C library."""
    return (
        sys.platform == "linux"
        and platform.python_implementation() == "CPython"
        and platform.libc_ver()[0] == "glibc"
        and not sysconfig.get_config_var("Py_GIL_DISABLED")
        and os.environ.get("LEAKSCOPE_PURE", "0") in ("", "0")
    )


setup(
    ext_modules=[
        Extension(
            "leakscope.heap._native",
            sources=sorted(str(part) for part in Path("leakscope/heap/native").glob("*.c")),
            depends=["leakscope/heap/native/walk.h", "leakscope/heap/native/seal.h"],
            include_dirs=["leakscope/heap/native"],
            extra_compile_args=["-O3", "-std=gnu11", "-fno-strict-aliasing", "-fvisibility=hidden"],
            optional=True,
        ),
        Extension(
            "leakscope.probes._counting",
            sources=[
                f"leakscope/probes/native/{part}.c" for part in ("collector", "counting", "pauses")
            ],
            depends=["leakscope/probes/native/layers.h"],
            libraries=["dl"],
            extra_compile_args=["-O3", "-std=gnu11", "-fvisibility=hidden"],
            optional=True,
        ),
        Extension(
            "leakscope.capture._returning",
            sources=["leakscope/capture/native/returning.c"],
            extra_compile_args=["-O3", "-std=gnu11", "-fvisibility=hidden"],
            optional=True,
        ),
        Extension(
            "leakscope.probes._sampling",
            sources=[
                f"leakscope/probes/native/{part}.c"
                for part in (
                    "blocks",
                    "relocations",
                    "samples",
                    "sampling",
                    "stacks",
                    "symbols",
                    "wrappers",
                )
            ],
            depends=[
                "leakscope/probes/native/layers.h",
                "leakscope/probes/native/sampling.h",
            ],
            include_dirs=["leakscope/probes/native"],
            extra_compile_args=["-O3", "-std=gnu11", "-fno-strict-aliasing", "-fvisibility=hidden"],
            libraries=["m", "dl"],
            optional=True,
        ),
    ]
    if can_build()
    else []
)
