"""Which of many programs `make test` runs; `make thorough` and `make zoo` run all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

SLOW_SAMPLE: dict[str, tuple[str, ...]] = {
    "browser/test_browser_pages.py": (
        "test_a_page_is_sound_and_open_to_everybody[comparison]",
        "test_a_page_is_sound_and_open_to_everybody[detector/leaking]",
        "test_a_page_is_sound_and_open_to_everybody[growth]",
        "test_a_page_is_sound_and_open_to_everybody[hostile]",
        "test_a_page_is_sound_and_open_to_everybody[runs]",
        "test_a_page_is_sound_and_open_to_everybody[snapshot]",
        "test_a_published_page_is_open_to_everybody[detector/leaking.html]",
        "test_a_published_page_is_open_to_everybody[index.html]",
        "test_a_published_page_is_open_to_everybody[zoo.html]",
    ),
    "cli/test_monitor_command.py": ("test_a_command_is_watched_to_its_end_and_ends_as_it_would",),
    "cli/test_out_of_memory_runs.py": (
        "test_the_kernels_kill_is_reported_with_the_last_census_before_it",
    ),
    "cli/test_run_until_leak.py": ("test_a_soak_test_of_a_real_program[True]",),
    "cli/test_show_command.py": ("test_a_run_is_shown_while_it_goes_on",),
    "cli/test_snapshot_command.py": ("TestACensusIsTaken::test_it_reads_well_and_names_the_run",),
    "docs/test_diagnosis_pages.py": (
        "test_the_leaking_snippet_is_reported_as_its_page_shows[growing-container]",
        "test_the_leaking_snippet_is_reported_as_its_page_shows[running-total]",
        "test_the_leaking_snippet_is_reported_as_its_page_shows[unbounded-cache]",
    ),
    "docs/test_guide.py": (),
    "docs/test_site.py": (),
    "docs/test_tutorial.py": (),
    "end_to_end/test_autograd_circles.py": (
        "test_the_loop_is_reported_with_its_steps_and_the_line_that_made_it[after_accumulation]",
    ),
    "end_to_end/test_child_programs.py": (
        "test_a_rollout_worker_that_keeps_its_frames_is_named",
        "test_processes_that_keep_nothing_are_clean[executor]",
        "test_the_process_that_leaks_is_named_with_its_line[spawn]",
        "test_what_workers_of_a_pool_keep_has_a_rate_per_task[pool]",
    ),
    "end_to_end/test_deep_graphs.py": ("test_a_state_that_is_never_detached_has_its_whole_rate",),
    "end_to_end/test_native_growth.py": (
        "test_decoders_that_a_list_keeps_are_one_culprit_with_what_their_library_holds",
        "test_the_fixed_twin_is_accused_of_nothing[thread_arenas]",
    ),
    "end_to_end/test_patterns.py": (
        "test_leak_is_named_with_its_line_and_rate[closure]",
        "test_leak_is_named_with_its_line_and_rate[list local to validation]",
        "test_leak_is_named_with_its_line_and_rate[outputs kept by every validation]",
        "test_leak_is_named_with_its_line_and_rate[scalar that keeps every graph]",
        "test_look_alike_is_clean",
    ),
    "end_to_end/test_compiled_code.py": (
        "test_a_function_that_is_compiled_for_each_name_leaks_where_the_limit_was_raised",
        "test_the_same_function_with_the_limit_as_it_is_ends_there_and_is_no_leak",
    ),
    "end_to_end/test_pileups.py": ("test_tasks_that_never_end_are_reported_as_tasks",),
    "end_to_end/test_ranks.py": ("test_a_rank_that_leaks_alone_is_distinguished_from_the_others",),
    "end_to_end/test_registries.py": (
        "test_a_registry_that_grows_is_named_with_the_line_that_registers[finalizers]",
        "test_every_registry_has_a_program",
    ),
    "end_to_end/test_sharded_training.py": (
        "test_what_keeps_them_is_named_with_line_and_rate[tensors_kept]",
    ),
    "end_to_end/test_torch_leaks.py": ("test_look_alike_is_clean",),
    "end_to_end/test_trainers.py": (
        "test_a_healthy_training_is_clean[transformers_healthy]",
        "test_a_leak_next_to_a_trainer_is_named_with_line_unit_and_rate[lightning_kept_outputs]",
    ),
    "end_to_end/test_worker_programs.py": (
        "test_a_cache_in_the_workers_is_named_with_its_line[fork]",
        "test_the_same_as_arrays_is_not_copied[fork]",
        "test_what_workers_copy_of_a_list_of_dicts_is_named_and_no_leak[persistent]",
    ),
    "end_to_end/test_ways_into_training.py": (
        "test_training_after_a_long_set_up_is_recorded_to_its_end[module]",
    ),
    "examples/test_examples.py": ("test_planted_leaks_are_the_top_culprits[detector]",),
    "faults/test_endings.py": ("test_without_one_sigterm_ends_both_and_the_report_says_so",),
    "faults/test_interrupts.py": (
        "test_an_interrupt_at_any_call_of_ours_reaches_the_program[KeyboardInterrupt]",
    ),
    "faults/test_kills.py": ("test_a_killed_training_has_its_report",),
    "faults/test_leftovers.py": (
        "test_a_killed_training_with_workers_leaves_its_recording_alone[fork-for an epoch-program]",
    ),
    "faults/test_probes_that_fail.py": (
        "test_where_everything_fails_the_training_learns_the_same[an exception]",
    ),
    "fidelity/test_a_program_cannot_tell.py": (
        "test_a_program_does_the_same[process_terminated-100%]",
        "test_a_program_does_the_same[python_closed_streams-100%]",
        "test_a_program_does_the_same[python_exception-100%]",
        "test_a_program_does_the_same[python_hostile_objects-100%]",
        "test_a_program_does_the_same[python_low_recursion-100%]",
        "test_a_program_does_the_same[python_signal_handlers-100%]",
        "test_a_program_does_the_same[python_work_in_finalizers-100%]",
        "test_a_program_does_the_same[torch_dispatch_mode-100%]",
        "test_a_program_does_the_same[torch_functorch-100%]",
        "test_a_program_does_the_same[torch_subclasses-100%]",
        "test_a_program_does_the_same[python_endings-2%]",
        "test_a_module_is_named_in_its_recording",
        "test_a_program_on_stdin_is_recorded",
    ),
    "frameworks/test_accelerate.py": (
        "TestPhasesAndSteps",
        "TestTrainingIsUndisturbed::test_no_fault_of_ours_changes_it",
    ),
    "frameworks/test_ignite.py": (
        "TestPhasesAndSteps",
        "TestTrainingIsUndisturbed::test_no_fault_of_ours_changes_it",
    ),
    "frameworks/test_keras.py": (
        "TestPhasesAndSteps",
        "TestTrainingIsUndisturbed::test_no_fault_of_ours_changes_it",
    ),
    "frameworks/test_keras_found.py": ("TestPhasesAndSteps",),
    "frameworks/test_lightning.py": (
        "TestPhasesAndSteps",
        "TestTrainingIsUndisturbed::test_no_fault_of_ours_changes_it",
        "TestTrainingIsUndisturbed::test_the_result_is_the_same_bit_by_bit",
    ),
    "frameworks/test_transformers.py": ("TestPhasesAndSteps",),
    "notebook/test_left_behind.py": ("test_cells_say_what_they_leave_behind[plainly]",),
    "notebook/test_notebook.py": ("TestThePage::test_the_leak_is_shown_below_its_cell",),
    "release/test_distributions.py": (),
    "release/test_elsewhere.py": (
        "test_a_leak_is_named_and_what_is_missing_reported[leakscope run]",
        "test_a_signal_reaches_the_program_once[SIGINT-group]",
    ),
    "testing/test_pytest_plugin.py": (
        "test_only_what_leaks_or_is_wrong_fails",
        "test_what_a_test_logs_is_not_counted_where_no_report_is_requested",
    ),
    "trackers/test_with_real_trackers.py": (
        "test_a_tracker_by_itself_is_given_the_memory[mlflow]",
    ),
    "zoo/test_zoo_sample.py": ("test_a_program_of_the_zoo_is_judged_rightly[two_at_once]",),
}
"""Slow tests that stand for the others of their kind: parts of a file, or all of it."""


def sampled(names: Iterable[str], sample: Collection[str]) -> list[Any]:
    """Return the names as parameters of a test, those outside the sample marked ``corpus``."""
    every = list(names)
    assert set(sample) <= set(every), f"unknown: {set(sample) - set(every)}"
    return [pytest.param(n, marks=[pytest.mark.corpus] * (n not in sample)) for n in every]


def is_of_the_sample(test: str) -> bool:
    """Return whether `make test` runs a slow test, named as pytest does, from the tests' folder."""
    file, _, name = test.partition("::")
    parts = SLOW_SAMPLE.get(file)
    if parts is None:
        return False
    return not parts or any(name == p or name.startswith((f"{p}::", f"{p}[")) for p in parts)
