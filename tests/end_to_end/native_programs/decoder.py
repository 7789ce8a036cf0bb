"""The decoder's binding: built on first use."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

_LIBRARY = Path("libdecoder.so").resolve()
if not _LIBRARY.exists():
    _SOURCE = Path(__file__).with_name("decoder.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", _LIBRARY, _SOURCE], check=True)
_decoder = ctypes.CDLL(str(_LIBRARY))
_decoder.decoder_open.restype = ctypes.c_void_p
_decoder.decoder_open.argtypes = [ctypes.c_size_t]
_decoder.decoder_read.restype = ctypes.c_long
_decoder.decoder_read.argtypes = [ctypes.c_void_p]
_decoder.decoder_close.argtypes = [ctypes.c_void_p]
_decoder.scratch.restype = ctypes.c_void_p
_decoder.scratch.argtypes = [ctypes.c_size_t]
_decoder.release.argtypes = [ctypes.c_void_p]

open_stream = _decoder.decoder_open
read = _decoder.decoder_read
close = _decoder.decoder_close
scratch = _decoder.scratch
release = _decoder.release
