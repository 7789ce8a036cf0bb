"""Snapshots of torch's CUDA allocator for people: terminal, page and pictures."""
