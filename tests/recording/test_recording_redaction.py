from __future__ import annotations

import pytest

from leakscope.recording import redact_command, redact_environment
from leakscope.recording.directory import redact_text

DRAWN = "qW7eR2tY9uI4oP1aS6dF3gH8jK5lZ0xC2vB7nM"


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


@pytest.mark.parametrize(
    "token",
    [
        f"hf_{DRAWN[:34]}",
        f"sk-{DRAWN}",
        f"sk-proj-{DRAWN[:9]}_{DRAWN[:12]}-{DRAWN[:14]}",
        f"sk-ant-api03-{DRAWN[:9]}_{DRAWN[:12]}-{DRAWN[:14]}",
        f"sk-or-v1-{DRAWN}",
        f"ghp_{DRAWN[:36]}",
        f"ghs_{DRAWN[:36]}",
        f"github_pat_{DRAWN[:22]}_{DRAWN}",
        f"glpat-{DRAWN[:12]}_{DRAWN[:7]}",
        f"glpat-{DRAWN[:27]}.01.{DRAWN[:9]}",
        "xoxb-123456789012-abcdefABCDEF",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0-dXJl_",
        "eyJhcGlfYWRkcmVzcyI6Imh0dHBzOi8v",
    ],
)
@pytest.mark.parametrize(
    "around", ["{}", "refused {}.", "/models/{}", "run_{}", "f('{}')", "{} and more"]
)
def test_whole_tokens_are_replaced_wherever_they_stand(token, around):
    assert redact_text(around.format(token)) in {
        around.format("<redacted>"),
        around.format("<redacted>").removesuffix("."),
    }


@pytest.mark.parametrize(
    "name",
    [
        "hf_eval_peek.py",
        "hf_finetune_token_classification.py",
        "experiments/hf_summarization/train.py",
        "sk-learn_baseline_of_the_paper.py",
        "sk-learn-baseline-of-the-paper.py",
        "sk-ant-colony-optimisation-of-the-learning-rate.py",
        "ghp_statistics_by_month.py",
        "gho_resampled_2024_10.csv",
        "github_pat_rotation_of_all_repositories.py",
        "AKIAHABARA_pedestrians.py",
        "AKIA_street_scenes.py",
        "eyJ_movement_tracking_run.py",
        "disk-cache-of-the-whole-dataset.py",
    ],
)
def test_names_of_files_that_begin_as_a_token_does_are_kept(name):
    assert redact_command(["python", name, f"--config={name}"]) == [
        "python",
        name,
        f"--config={name}",
    ]


def test_the_key_that_a_dictionary_misses_is_reported():
    assert redact_text("KeyError: 'layer1.weight'") == "KeyError: 'layer1.weight'"


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
