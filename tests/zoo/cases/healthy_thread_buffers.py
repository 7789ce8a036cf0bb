"""A TCP server that smooths signals, a few threads at work, each with work space of its own."""

import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

PER_SECOND, SECONDS, WORKERS, LONGEST = 45, 14, 5, 60000
HEAD = struct.Struct("<I")


class Workspace(threading.local):
    """Arrays of a thread that are made for its longest signal and used again."""

    def __init__(self):
        self.arrays = {}

    def array(self, name, length):
        if name not in self.arrays or len(self.arrays[name]) < length:
            self.arrays[name] = np.empty(1 << (length - 1).bit_length(), dtype=np.float64)
        return self.arrays[name][:length]


class Smoother:
    def __init__(self, width=401):
        window = np.hanning(width)
        self.window = window / window.sum()
        self.space = Workspace()

    def smooth(self, signal):
        length = len(signal)
        padded = self.space.array("padded", length + len(self.window) - 1)
        half = len(self.window) // 2
        padded[:half], padded[-half:] = signal[0], signal[-1]
        padded[half : half + length] = signal
        result = self.space.array("result", length)
        result[:] = np.convolve(padded, self.window, mode="valid")
        return result.astype(np.float32)


class Server:
    def __init__(self, smoother):
        self.smoother = smoother
        self.pool = ThreadPoolExecutor(WORKERS)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.served = 0

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.pool.submit(self.handle, connection)

    def handle(self, connection):
        with connection:
            (size,) = HEAD.unpack(receive(connection, HEAD.size))
            signal = np.frombuffer(receive(connection, size), dtype=np.float32)
            smooth = self.smoother.smooth(signal)
            connection.sendall(smooth.tobytes())
        self.served += 1

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.pool.shutdown()


def receive(connection, size):
    """Return so many bytes from a connection."""
    pieces = []
    while size:
        piece = connection.recv(min(size, 1 << 16))
        if not piece:
            raise ConnectionError("the other side has gone")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def main():
    server = Server(Smoother())
    accepting = threading.Thread(target=server.run, daemon=True)
    accepting.start()
    rng = np.random.default_rng(0)
    begun = time.monotonic()
    for number in range(PER_SECOND * SECONDS):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        signal = rng.standard_normal(int(rng.integers(4000, LONGEST)), dtype=np.float32)
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(HEAD.pack(signal.nbytes) + signal.tobytes())
            answer = np.frombuffer(receive(connection, signal.nbytes), dtype=np.float32)
        if number % 90 == 89:
            print(f"{number + 1} sent, {server.served} served, {answer.std():.3f}", flush=True)
    server.stop()
    accepting.join()


if __name__ == "__main__":
    main()
