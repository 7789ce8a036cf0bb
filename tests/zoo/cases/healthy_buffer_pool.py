"""An echo server with threads and a pool of buffers: with the load there are more, 48 at most."""

import random
import socket
import threading
import time


class BufferPool:
    def __init__(self, size):
        self.size = size
        self.free = []
        self.made = 0
        self.lock = threading.Lock()

    def take(self):
        with self.lock:
            if self.free:
                return self.free.pop()
            self.made += 1
        return bytearray(b"\1" * self.size)

    def give(self, buffer):
        with self.lock:
            self.free.append(buffer)


def echo(sock, pool, rounds, rng):
    for _ in range(rounds):
        buffer = pool.take()
        received = sock.recv_into(buffer)
        time.sleep(rng.uniform(0.001, 0.01))
        sock.sendall(memoryview(buffer)[:received])
        pool.give(buffer)


def client(sock, rounds):
    for _ in range(rounds):
        sock.sendall(b"x" * 4000)
        got = 0
        while got < 4000:
            got += len(sock.recv(4096))


def main():
    pool = BufferPool(256 * 1024)
    rng = random.Random(1)
    for wave in range(40):
        clients = min(48, 2 + 2 * wave)
        threads = []
        for _ in range(clients):
            a, b = socket.socketpair()
            threads += [
                threading.Thread(target=echo, args=(a, pool, 8, rng)),
                threading.Thread(target=client, args=(b, 8)),
            ]
            threads[-1].sockets = (a, b)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for thread in threads:
            for sock in getattr(thread, "sockets", ()):
                sock.close()
        time.sleep(0.25)
        if wave % 5 == 0:
            print("wave", wave, "clients", clients, "buffers", pool.made)


if __name__ == "__main__":
    main()
