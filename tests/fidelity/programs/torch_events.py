"""Saves, logs, figures, processes, threads and optimizers as a program may look at them itself."""

import copy
import inspect
import io
import logging
import os
import pickle
import subprocess
import sys
import threading
import traceback

import torch
from driving import train
from torch import nn


class Intercepting(logging.Handler):
    """Walks the frames of a call as loguru's recipe does."""

    def emit(self, record):
        frame, depth = sys._getframe(1), 0
        while frame is not None and frame.f_code.co_filename == logging.__file__:
            frame, depth = frame.f_back, depth + 1
        names = [each.name for each in traceback.extract_stack(frame)][-2:]
        print(record.getMessage(), record.funcName, record.lineno, depth, names)


log = logging.getLogger("program")
log.addHandler(Intercepting())
log.setLevel("INFO")
log.propagate = False


def failing(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        frames = [each.name for each in traceback.extract_tb(error.__traceback__)]
        print(type(error).__name__, str(error)[:60], frames, error.__context__ is None)
        traceback.clear_frames(error.__traceback__)


def look(model, x):
    log.info("one %s", "record")
    log.error("an error", stack_info=True)
    try:
        raise KeyError("lost")
    except KeyError:
        log.exception("kept")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    print(sorted(torch.load(file)))
    failing(torch.save, lambda: 0, io.BytesIO())
    failing(torch.load, io.BytesIO(b"none"))
    failing(torch.optim.SGD, [], lr=0.1)
    failing(torch.optim.SGD, [nn.Parameter(torch.ones(1))], lr=-1)
    failing(subprocess.Popen, ["/nowhere/at/all"])
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    failing(torch.optim.lr_scheduler.StepLR, model, 2)
    print(len(copy.deepcopy(optimizer).param_groups), len(pickle.dumps(scheduler.state_dict())))
    print(subprocess.run(["echo", "said"], capture_output=True, check=True).stdout)
    thread = threading.Thread(target=lambda: print(len(traceback.extract_stack()) < 6))
    thread.start()
    thread.join()
    child = os.fork()
    if not child:
        os._exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


train(in_epoch=look)
for function in (torch.save, torch.load, logging.Logger.info, threading.Thread.start):
    print(function.__qualname__, inspect.signature(function), inspect.unwrap(function) is function)
for function in (logging.Logger.makeRecord, torch.optim.Optimizer.__init__):
    print(function.__module__, function.__qualname__, inspect.signature(function))
print(inspect.signature(torch.optim.SGD), torch.save is torch.serialization.save)
print(pickle.loads(pickle.dumps(torch.save)) is torch.save)
print(pickle.loads(pickle.dumps(torch.optim.Optimizer.__init__)) is torch.optim.Optimizer.__init__)
