"""What is true of programs whose memory a library in native code holds.

Where a container's items hold it, the container is to blame; where nothing of the program's does,
the finding has the library and the line in its title.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy, leak

NATIVE: dict[str, Truth] = {
    "ctypes_descriptors": Truth(
        (Leak(("unexplained",), line="libc.malloc(4 * WIDTH)", kept={"step": 4.0 * 6144 * 8}),)
    ),
    "healthy_ctypes_descriptors": healthy(),
    "extension_operator": Truth(
        (Leak(("unexplained",), line="ranking.soft_rank(x)", kept={"step": 96 * 256 * 4 / 2}),),
        needs=("g++", "ninja"),
    ),
    "healthy_extension_operator": healthy("g++", "ninja"),
    "smart_strings": leak("Headlines.met", "main.headlines.met", needs=("lxml",)),
    "healthy_smart_strings": healthy("lxml"),
    "chunk_caches": leak("Volumes.open", "main.volumes.open", needs=("h5py",)),
    "healthy_chunk_caches": healthy("h5py"),
    "open_videos": leak("Clips.readers", "main.clips.readers", needs=("av",)),
    "healthy_open_videos": healthy("av"),
    "tenant_tokenizers": Truth(
        (Leak(("unexplained",), line=".encode_batch(texts)"),), needs=("tokenizers",)
    ),
    "healthy_one_tokenizer": healthy("tokenizers"),
    "message_window": leak(
        "Recorder.messages", "main.recorder.messages", needs=("google.protobuf",)
    ),
    "healthy_message_window": healthy("google.protobuf"),
    "traced_every_round": Truth(
        (Leak(("unexplained", "native_held"), line="torch.jit.trace(model, held_out)"),)
    ),
    "healthy_traced_once": healthy(),
}
