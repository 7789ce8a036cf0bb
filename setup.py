"""Builds the native heap walker where there is a compiler; the package installs without it too."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "leakscope.heap._native",
            sources=["leakscope/heap/_native.c"],
            extra_compile_args=["-O3", "-std=gnu11", "-fno-strict-aliasing"],
            optional=True,
        )
    ]
)
