"""Redaction: keeps passwords and keys out of recordings, which are made to be shared.

Names decide (``--api-key``, ``WANDB_API_KEY``, ``password``), then the shapes of well-known tokens
and the user part of URLs. It errs towards hiding, except for words that training scripts are full
of: keypoints, tokenizers, ``max_tokens``, and for names of files that begin as a token does:
``hf_train.py``, ``sk-learn_baseline.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

REDACTED = "<redacted>"

_SENSITIVE = (
    r"(?:key(?!point|frame|word|board|error)|token(?!i[sz]|s(?![a-z]))|secret|passw|passphrase|"
    r"credential|(?<![a-z])pwd(?![a-z]))"
)
_SENSITIVE_NAME = re.compile(_SENSITIVE, re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"([\w.-]*{_SENSITIVE}[\w.-]*['\"\]]*\s*[=:]\s*)(['\"]?)([^\s'\"&;,]+)", re.IGNORECASE
)
_USERINFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_TOKENS = (
    r"hf_[A-Za-z0-9]{20,}",
    r"sk-[A-Za-z0-9]{20,}",
    r"sk-(?:proj|svcacct|admin|ant-[a-z]+\d\d|or-v\d)-[\w-]{32,}",
    r"gh[opsur]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9]{20,}\w*",
    r"glpat-[\w-]{20,}(?:\.\w+)*",
    r"xox[abeoprs]-[A-Za-z0-9-]{12,}",
    r"AKIA[A-Z0-9]{16,}",
    r"eyJ[A-Za-z0-9]{16,}[\w.+/=-]*",
)
"""Tokens are long and drawn by chance: words, and the dots and underscores between the words of a
name, soon break the run of letters and digits that tells them."""
_TOKEN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})")
_PLAIN_SETTINGS = frozenset({"true", "false", "none", "null", "yes", "no", "on", "off"})


def redact_command(argv: Sequence[str]) -> list[str]:
    """Return a command line with the values that look like secrets replaced."""
    redacted: list[str] = []
    value_is_secret = False
    for argument in argv:
        if value_is_secret and not argument.startswith("-"):
            redacted.append(REDACTED)
            value_is_secret = False
            continue
        redacted.append(redact_text(argument))
        is_option = argument.startswith("-") and "=" not in argument and " " not in argument
        value_is_secret = is_option and _SENSITIVE_NAME.search(argument) is not None
    return redacted


def redact_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with the values that look like secrets replaced."""
    return {
        name: REDACTED if _SENSITIVE_NAME.search(name) and value else redact_text(value)
        for name, value in environment.items()
    }


def redact_text(text: str) -> str:
    """Return a text, such as the message of an exception, with what looks like secrets replaced."""
    text = _USERINFO.sub(rf"\g<scheme>{REDACTED}@", text)
    text = _ASSIGNMENT.sub(_redact_assignment, text)
    return _TOKEN.sub(REDACTED, text)


def _redact_assignment(match: re.Match[str]) -> str:
    name, quote, value = match.groups()
    if value.lower() in _PLAIN_SETTINGS:
        return match.group()
    return f"{name}{quote}{REDACTED}"
