"""Redaction: keeps passwords and keys out of recordings, which are made to be shared.

Names decide (``--api-key``, ``WANDB_API_KEY``, ``password``), then the shapes of well-known tokens
and the user part of URLs. It errs towards hiding, except for words that training scripts are full
of: keypoints, tokenizers, ``max_tokens``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

REDACTED = "<redacted>"

_SENSITIVE = (
    r"(?:key(?!point|frame|word|board)|token(?!i[sz]|s(?![a-z]))|secret|passw|passphrase|"
    r"credential|(?<![a-z])pwd(?![a-z]))"
)
_SENSITIVE_NAME = re.compile(_SENSITIVE, re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"([\w.-]*{_SENSITIVE}[\w.-]*['\"\]]*\s*[=:]\s*)(['\"]?)([^\s'\"&;,]+)", re.IGNORECASE
)
_USERINFO = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ)[A-Za-z0-9_.-]{12,}"
)
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
