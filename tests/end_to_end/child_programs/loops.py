"""Work in child processes: ``loops.py HOW WHO``, number WHO of which leaks (0: none)."""

import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

KEPT = []
SECONDS = 11.0
TASKS = 240


def work(leaks):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        block = bytearray(400_000)
        if leaks:
            KEPT.append(block)
        time.sleep(0.05)


def task(leaks):
    block = bytearray(200_000)
    if leaks:
        KEPT.append(block)
    time.sleep(0.02)
    return len(block)


def in_processes(method, who):
    context = get_context(method)
    processes = [context.Process(target=work, args=(who == n,)) for n in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def in_manager(who):
    with get_context("fork").Manager() as manager:
        shared = manager.dict()
        end = time.monotonic() + SECONDS
        number = 0
        while time.monotonic() < end:
            number += 1
            shared[number if who else 0] = bytes(400_000)
            time.sleep(0.05)
        return len(shared) > 1


def main(how, who):
    if how in ("fork", "spawn", "forkserver"):
        print(in_processes(how, who))
    elif how == "pool":
        with get_context("fork").Pool(2) as pool:
            print(sum(pool.imap_unordered(task, [bool(who)] * TASKS)))
    elif how == "executor":
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            print(sum(pool.map(task, [bool(who)] * TASKS)))
    elif how == "pool in chunks":
        with get_context("fork").Pool(2) as pool:
            print(sum(pool.imap_unordered(task, [bool(who)] * TASKS, chunksize=4)))
    elif how == "executor in chunks":
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            print(sum(pool.map(task, [bool(who)] * TASKS, chunksize=4)))
    elif how == "manager":
        print(in_manager(who))
    elif how == "subprocess":
        print(subprocess.call([sys.executable, __file__, "alone", str(who)]))
    else:
        work(bool(who))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
