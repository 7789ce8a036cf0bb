"""What is true of the fifteenth set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, from the objects that are kept, or as memory in use in the C heap.
No program marks its line: what feeds a leak is named here. What is kept in a minute is known of two
jobs that hardly do anything but wait for their interval.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

FIFTEENTH: dict[str, Truth] = {
    "continual_distill": Truth(
        (
            Leak(
                ("Distiller.opt.state", "main.distiller.opt.state", "distiller.opt.state",
                 "Distiller.opt.param_groups", "main.distiller.opt.param_groups",
                 "distiller.opt.param_groups", "Adam.state", "Adam.param_groups"),
                line="self.opt.add_param_group(",
                kept={"step": 64500},
            ),
        )
    ),
    "corpus_mixer": Truth(
        (
            Leak(
                ("Mixer.streams", "main.mixer.streams", "mixer.streams"),
                line="self.streams.append(stream)",
                kept={"step": 145200},
            ),
        )
    ),
    "fed_hospitals": Truth(
        (
            Leak(
                ("Link.outbox", "Link.outbox.queue", "main.server.links[4].outbox",
                 "main.server.links[4].outbox.queue", "server.links[4].outbox",
                 "server.links[4].outbox.queue", "Server.links[4].outbox",
                 "Server.links[4].outbox.queue"),
                line="link.outbox.put(snapshot)",
                kept={"step": 10250},
            ),
        )
    ),
    "gnn_citation": Truth(
        (
            Leak(
                ("SmoothedStopper.smoothed", "Trainer.state.stopper.smoothed",
                 "RunState.stopper.smoothed"),
                line="self.smoothed = self.beta * self.smoothed",
                kept={"validation": 259800, "step": 32475},
            ),
        ),
        needs=("networkx",),
    ),
    "keyword_spotting": Truth(
        (
            Leak(
                ("SpeechClips._features", "data._features", "main.data._features"),
                also=("children",),
                line="self._features[key] = (self._spectrogram(",
                kept={"epoch": 5242560, "pass": 2621280, "step": 524256},
            ),
        )
    ),
    "label_printing": Truth(
        (
            Leak(
                ("make_label.layers",),
                also=("children",),
                line="layers.append(",
                kept={"minute": 293000000},  # in each of the two processes
            ),
        ),
        needs=("PIL",),
    ),
    "log_archiver": Truth(
        (
            Leak(
                ("unexplained", "native", "native_held"),
                line="rc = z.deflateInit_(",
                kept={"minute": 446000000},
            ),
        )
    ),
    "orders_etl": Truth(
        (
            Leak(
                ("DeadLetters.errors", "main.pipe.dead.errors", "pipe.dead.errors",
                 "Pipeline.dead.errors"),
                line="self.errors.append((batch_no, exc))",
                kept={"batch": 79430},
            ),
        ),
        needs=("pandas",),
    ),
    "photo_gallery": Truth(
        (
            Leak(
                ("finalizers", "registry", "weakref.finalize._registry", "finalize._registry"),
                line="weakref.finalize(self, release_surface, pixels)",
                kept={"upload": 196000},
            ),
        ),
        needs=("PIL",),
    ),
    "quote_gateway": Truth(
        (
            Leak(
                ("Channel._calls", "Gateway.channel._calls", "main.gateway.channel._calls",
                 "gateway.channel._calls"),
                line="self._calls[rid] = Call(future, book)",
                kept={"request": 32000},
            ),
        )
    ),
    "reinforce_pendulum": Truth(
        (
            Leak(
                ("main.policy.body[3]._forward_hooks", "policy.body[3]._forward_hooks",
                 "Policy.body[3]._forward_hooks"),
                line="layer.register_forward_hook(hook)",
                kept={"step": 131072},
            ),
        )
    ),
    "report_service": Truth(
        (
            Leak(
                ("QueryStats.samples", "Session.stats.samples", "_local.session.stats.samples"),
                line="self.samples.append((took, sql, rows))",
                kept={"request": 88000},
            ),
        )
    ),
    "sensor_rollup": Truth(
        (
            Leak(
                ("Rollup.table", "main.rollup.table", "rollup.table"),
                line="self.table = pa.concat_tables(",
                kept={"batch": 44000},
            ),
        ),
        needs=("pyarrow",),
    ),
    "survey_import": Truth(
        (Leak(("Record._known",), line="Record._known.append(cls)", kept={"file": 180000}),),
        needs=("pyarrow",),
    ),
    "tabular_hpo": Truth(
        (
            Leak(
                ("EventBus._channels['epoch_end']", "EventBus._channels",
                 "main.study.bus._channels['epoch_end']", "main.study.bus._channels",
                 "study.bus._channels['epoch_end']", "study.bus._channels",
                 "Study.bus._channels['epoch_end']", "Study.bus._channels"),
                line="self._channels[event].append(fn)",
                kept={"step": 10972},
            ),
        )
    ),
    "thermal_camera": Truth(
        (
            Leak(
                ("unexplained", "native", "native_held"),
                line="desc.pixels = libc.malloc(",
                kept={"frame": 76800},
            ),
        )
    ),
    "healthy_passage_encoder": healthy(),
    "healthy_dqn_gridworld": healthy(),
    "healthy_shapes_classifier": healthy(),
    "healthy_char_lm_curriculum": healthy(),
    "healthy_session_server": healthy("aiohttp"),
    "healthy_segmentation_eval": healthy(),
    "healthy_warehouse_lookup": healthy("pandas"),
    "healthy_analytics_pool": healthy(),
    "healthy_texture_autoencoder": healthy(),
    "healthy_plugin_pool": healthy(),
    "healthy_progressive_finetune": healthy(),
    "healthy_scene_graphs": healthy(),
}  # fmt: skip
