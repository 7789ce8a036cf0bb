"""What is true of programs of the kinds that were judged wrongly when they came in.

Where native code, a registry or a child process holds what leaks, any of the names that come near
is right; that nothing has a name, and the run is called clean, is not.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy, leak

FIGURES = ("open_figures", "matplotlib._pylab_helpers.Gcf.figs", "Gcf.figs")

KINDS: dict[str, Truth] = {
    "main_ends_first": Truth(
        (
            Leak(
                ("main.prototypes.by_class", "Prototypes.by_class", "Prototypes.by_class[*]"),
                kept={"epoch": 640 * 1024 * 4.0, "step": 640 * 1024 * 4.0 / 20},
            ),
        )
    ),
    "saliency_figures": leak(*FIGURES, needs=("matplotlib",)),
    "hook_closes_over_output": leak("autograd_loop", "native_held", "unexplained", "native"),
    "hook_weighs_decoding": Truth(
        (
            Leak(
                ("autograd_loop",),
                kept={"epoch": 64 * 768 * 4.0 * 20, "step": 64 * 768 * 4.0},
            ),
        )
    ),
    "healthy_hook_removed": healthy(),
    "unpack_looks_at_result": Truth(
        (
            Leak(
                ("autograd_loop",),
                line="saved_tensors_hooks(self.pack, self.unpack)",
                kept={"epoch": 80 * 320 * 4.0 * 17.5, "step": 80 * 320 * 4.0 * 7 / 8},
            ),
        )
    ),
    "healthy_hooks_refer_back": healthy(),
    "compiled_per_scale": leak(
        "compiled code of objective", "compiled_code", "native_held", "unexplained", "native"
    ),
    "message_types_registered": Truth(
        (
            Leak(
                ("copyreg.dispatch_table", "registry", "unexplained"),
                kept={"epoch": 512 * 768 * 4.0, "step": 512 * 768 * 4.0 / 50},
            ),
        )
    ),
    "curves_kept_twice": leak(
        "Dashboard.panels", "main.board.panels", *FIGURES, needs=("matplotlib",)
    ),
    "spawned_learners": Truth((Leak(("HISTORY",), kept={"step": 256 * 26 * 4 * 4.0}),)),
    "healthy_fills_in_nine_steps": healthy(),
    "healthy_three_epochs": healthy(),
    "healthy_unfreezes_to_the_end": healthy(),
    "healthy_longer_every_step": healthy(),
    "healthy_work_list": healthy(),
}
