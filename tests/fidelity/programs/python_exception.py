"""An exception leaves the program from deep inside the training, with a cause."""

from driving import train


def fail(model, x):
    try:
        model(x[:, :3])
    except RuntimeError as error:
        raise ValueError("bad shape") from error


train(in_epoch=fail)
