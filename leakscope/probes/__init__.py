"""What is measured at a boundary: one module per source.

Probes read; they never start threads, import torch, create a CUDA context or raise. A source that
is missing (another platform, no GPU, no control group) yields no gauges rather than zeros.
"""
