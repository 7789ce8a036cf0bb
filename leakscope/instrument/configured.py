"""Options of a session, with what the project and its environment chose where nobody said so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leakscope.instrument.options import SessionOptions


def chosen_trackers(value: object) -> str | None:
    """Return the trackers that an argument or option names; None where nothing was said.

    Raises:
        LeakscopeError: it names something else.

    """
    from leakscope.configuration.settings import UnreadableError, to_trackers
    from leakscope.model.errors import LeakscopeError

    try:
        return None if value is None else to_trackers(value)
    except UnreadableError as fault:
        raise LeakscopeError(
            f"trackers must be {fault}, not {value!r}.", slug="bad-option"
        ) from None


def configured_options(say: Callable[[str], None] | None = None, **asked: Any) -> SessionOptions:
    """Return the options of a session.

    Args:
        say: Told each sentence on what is passed over, such as a key that is unknown.
        asked: Fields of the options; None stands for what was not said.

    Raises:
        LeakscopeError: options make no sense, wherever they come from.

    """
    from leakscope.configuration.reading import read_configuration
    from leakscope.configuration.settings import CHECK, SETTINGS

    configuration = read_configuration()
    configuration.refuse_faults()
    if say is not None:
        for remark in configuration.remarks:
            say(remark)
    options = {
        setting.option: configuration.chosen[setting.name].value
        for setting in SETTINGS
        if setting.name in configuration.chosen and not setting.name.startswith(f"{CHECK}.")
    }
    options |= {name: value for name, value in asked.items() if value is not None}
    return SessionOptions(**options)
