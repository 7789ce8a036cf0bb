"""Warnings are errors, filters and registries are as they were left."""

import warnings

from driving import train

warnings.simplefilter("error")
before = list(warnings.filters)


def warned(model, x):
    try:
        warnings.warn("careful", UserWarning, stacklevel=1)
    except UserWarning as error:
        print(error)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("caught", UserWarning, stacklevel=1)
        model(x)
        model(x)
    print(len(caught))


train(in_epoch=warned)
print(warnings.filters == before, globals().get("__warningregistry__"))
