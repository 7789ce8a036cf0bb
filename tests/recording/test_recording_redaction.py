from __future__ import annotations

import pytest

from leakscope.recording import redact_command, redact_environment


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", "hunter2"],
        ["--api_key=hunter2"],
        ["--hub.token", "hunter2"],
        ["+wandb.api_key=hunter2"],
        ["--password", "hunter2"],
        ["-c", "login(password='hunter2')"],
        ["-c", "import os; os.environ['HF_TOKEN'] = 'hunter2'"],
        ['{"aws_secret_access_key": "hunter2"}'],
        ["postgres://me:hunter2@host/db"],
        ["https://hunter2@github.com/me/data.git"],
        ["--note", "hf_hunter2hunter2hunter2"],
        ["sk-hunter2hunter2hunter2"],
    ],
)
def test_secrets_are_replaced(argv):
    assert "hunter2" not in " ".join(redact_command(["train.py", *argv]))


@pytest.mark.parametrize(
    "argv",
    [
        ["--num-keypoints", "17"],
        ["--tokenizer", "gpt2"],
        ["--max-tokens=512"],
        ["--max_tokens", "512"],
        ["--keyframe-interval", "8"],
        ["--token", "--lr", "3e-4"],
        ["--use-auth-token=true"],
        ["https://example.org/a?page=2"],
        ["--data", "user@host:/data"],
        ["--monitor", "val/loss"],
    ],
)
def test_what_training_scripts_are_full_of_is_kept(argv):
    assert redact_command(argv) == argv


def test_environment_values_go_by_their_names():
    redacted = redact_environment(
        {
            "WANDB_API_KEY": "a",
            "HF_TOKEN": "b",
            "AWS_SECRET": "c",
            "DB_PASSWORD": "d",
            "PROXY": "http://me:pw@proxy:80",
            "TOKENIZERS_PARALLELISM": "false",
            "EMPTY_KEY": "",
            "torch": "2.13.0",
        }
    )
    assert redacted == {
        "WANDB_API_KEY": "<redacted>",
        "HF_TOKEN": "<redacted>",
        "AWS_SECRET": "<redacted>",
        "DB_PASSWORD": "<redacted>",
        "PROXY": "http://<redacted>@proxy:80",
        "TOKENIZERS_PARALLELISM": "false",
        "EMPTY_KEY": "",
        "torch": "2.13.0",
    }


def test_redacting_twice_changes_nothing():
    once = redact_command(["--api-key", "x", "a_token=y", "ftp://u:p@h"])
    assert redact_command(once) == once
