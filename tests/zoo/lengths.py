"""How long programs of the zoo run, where no name in them says it or more than one number does."""

from __future__ import annotations

LENGTHS = {
    "aliased_history": "epochs=6",
    "average_meter": "EPOCHS = 5",
    "collector_off": "EPOCHS = 6",
    "detection_validation_lists": "EPOCHS = 7",
    "generator_remembers": "STEPS = 400",
    "late_hard_examples": "EPOCHS, MINE_FROM = 12, 5",
    "memory_bank_cat": "EPOCHS = 6",
    "text_log": "EPOCHS = 8",
    "three_at_once": "EPISODES, STEPS = 8",
    "two_at_once": "EPOCHS = 8",
    "within_validation": "EPOCHS = 5",
    "worker_caches": "EPOCHS = 7",
    "order_service": "seconds=18",
    "engine_thread": "seconds=18",
    "fastapi_audit": "seconds=18",
    "healthy_order_service": "seconds=18",
    "healthy_engine_thread": "seconds=18",
    "healthy_fastapi": "seconds=18",
    "healthy_work_list": "range(800)",
    "healthy_longer_every_step": "range(12)",
    "healthy_arena_retention": "STEPS = 240",
    "healthy_copy_on_write": "EPOCHS = 6",
    "healthy_curriculum": "EPOCHS, STEPS = 8",
    "healthy_gradual_unfreezing": "EPOCHS = 12",
    "healthy_lru_frames": "EPOCHS = 8",
    "healthy_replay_fills_late": "range(600)",
    "healthy_three_best": "EPOCHS, STEPS = 12",
    "healthy_varying_batches": "STEPS = 300",
}
"""The programs, each with the part of its text whose numbers say how long it runs."""

FURTHER_LENGTHS = {
    "child_actor": "4001",
    "healthy_meta_learning": "range(140)",
    "streaming_recogniser": "600",
    "inflight_requests": " 14,",
    "partitioned_logs": " 60,",
    "traced_candidates": " 76",
    "tree_planner": "450",
    "scratch_maps": "360,",
    "unacknowledged": " 14,",
    "healthy_thread_buffers": " 14,",
}
"""Others for which the first number that is named so is another one."""
