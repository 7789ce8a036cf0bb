"""An audit hook hears of what the program does, in its order."""

import os
import sys
import tempfile

from driving import train

events = []
heard = ("open", "os.mkdir", "os.rename", "os.remove", "subprocess.Popen", "socket.connect")


def hook(event, arguments):
    if event in heard and arguments and str(arguments[0]).startswith(folder):
        events.append((event, os.path.relpath(str(arguments[0]), folder)))


def store(model, x):
    os.mkdir(f"{folder}/{len(events)}")
    with open(f"{folder}/a", "w") as stream:
        stream.write("text")
    os.rename(f"{folder}/a", f"{folder}/b")
    os.remove(f"{folder}/b")


folder = os.path.realpath(tempfile.mkdtemp())
sys.addaudithook(hook)
train(in_epoch=store)
print(len(events), events)
print(sorted(os.listdir(folder)), [name for name in os.listdir(".") if "leak" in name])
