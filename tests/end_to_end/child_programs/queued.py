"""A worker of a task queue or a service of gRPC, with what it is given; keeps it where told to.

Arguments: celery, dramatiq, rq or grpc; 1 to keep what each task makes.
"""

import os
import sys
import time

KEEPS = sys.argv[2] == "1"
SECONDS = 24.0
PAUSE = 0.02


class Encoder:
    def __init__(self):
        self.results = []

    def encode(self):
        block = os.urandom(20_000)
        if KEEPS:
            self.results.append(block)


encoder = Encoder()


def encode():
    encoder.encode()


def feed(send):
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        send()
        time.sleep(PAUSE)


def with_celery():
    from celery import Celery
    from celery.contrib.testing.worker import start_worker

    app = Celery("queued", broker="memory://")
    app.conf.task_ignore_result = True
    task = app.task(encode)
    with start_worker(app, perform_ping_check=False):
        feed(task.delay)


def with_dramatiq():
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    broker = StubBroker()
    dramatiq.set_broker(broker)
    actor = dramatiq.actor(encode)
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    feed(actor.send)
    worker.stop()


def with_rq():
    import fakeredis
    import rq

    connection = fakeredis.FakeStrictRedis()
    queue = rq.Queue(connection=connection)
    worker = rq.SimpleWorker([queue], connection=connection)

    def send():
        queue.enqueue("queued.encode", result_ttl=0)
        worker.work(burst=True, logging_level="ERROR")

    feed(send)


def with_grpc():
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    def answer(request, context):
        encoder.encode()
        return b""

    methods = {"Encode": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Encoder", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Encoder/Encode")
    feed(lambda: call(b""))
    server.stop(1)


if __name__ == "__main__":
    sys.modules["queued"] = sys.modules["__main__"]
    {"celery": with_celery, "dramatiq": with_dramatiq, "rq": with_rq, "grpc": with_grpc}[
        sys.argv[1]
    ]()
