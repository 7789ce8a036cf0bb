"""What is true of the eleventh set: programs written without a look at how verdicts are made.

Bytes were counted from shapes, and held against the C heap and the resident memory of runs of two
lengths without leakscope. No program marks its line: what feeds a leak is named here. Services and
jobs without steps keep a pace, so that what they keep in a minute is known.
"""

from __future__ import annotations

from truth import Leak, Truth, healthy

ELEVENTH: dict[str, Truth] = {
    "pcap_flows": Truth(
        (
            Leak(
                ("FlowTable.flows", "main.table.flows", "table.flows"),
                line="self.flows[flow.key] = flow",
                kept={"minute": 238400000},
            ),
        )
    ),
    "reinforce_router": Truth(
        (
            Leak(
                ("Reinforce.baseline", "main.learner.baseline", "learner.baseline"),
                line="self.baseline = self.momentum * self.baseline",
                kept={"step": 154900},
            ),
        )
    ),
    "profiled_epochs": Truth(
        (
            Leak(
                ("EpochProfiler.traces", "Trainer.profiler.traces", "trainer.profiler.traces"),
                line="self.traces.append(",
                kept={"epoch": 5317000, "step": 166200},
            ),
        )
    ),
    "pole_episodes": Truth(
        (
            Leak(
                ("Episode.pictures",),
                line="self.pictures.append(",
                kept={"step": 815000},
            ),
        )
    ),
    "spectral_subgraphs": Truth(
        (
            Leak(
                ("_SPECTRA",),
                line="_SPECTRA[id(subgraph)] = (subgraph, features)",
                kept={"step": 144800},
            ),
        )
    ),
    "fold_handlers": Truth(
        (
            Leak(
                ("log.handlers", "Logger.handlers", "logging.Logger.handlers",
                 "logging.root.manager.loggerDict['churn.cv'].handlers",
                 "logging.Logger.manager.loggerDict['churn.cv'].handlers",
                 "Logger.manager.loggerDict['churn.cv'].handlers",
                 "Manager.loggerDict['churn.cv'].handlers"),
                line="log.addHandler(handler)",
                kept={"step": 3421, "validation": 256600},
            ),
        )
    ),
    "expiring_tiles": Truth(
        (
            Leak(
                ("loop._scheduled", "main.loop._scheduled", "TileStore.loop._scheduled",
                 "MapServer.store.loop._scheduled", "main.server.store.loop._scheduled",
                 "BaseEventLoop._scheduled", "_UnixSelectorEventLoop._scheduled"),
                line="self.loop.call_later(",
                kept={"minute": 141000000},
            ),
        )
    ),
    "feature_lineage": Truth(
        (
            Leak(
                ("Lineage.graph._node", "main.lineage.graph._node", "lineage.graph._node",
                 "Lineage.graph.nodes", "main.lineage.graph.nodes", "Lineage.graph",
                 "main.lineage.graph", "DiGraph._node",
                 "Recommender.lineage.graph._node"),
                also=("Lineage.graph._adj", "Lineage.graph._succ", "Lineage.graph._pred",
                      "main.lineage.graph._adj", "main.lineage.graph._succ",
                      "main.lineage.graph._pred"),
                line="self.graph.add_node(",
                kept={"minute": 55000000},
            ),
        ),
        needs=("networkx",),
    ),
    "dry_run_tracker": Truth(
        (
            Leak(
                tuple(
                    f"{base}{child}.{calls}"
                    for base in ("tracker", "main.tracker", "Training.tracker",
                                 "main.training.tracker", "NonCallableMagicMock", "MagicMock")
                    for child in ("", ".log_array", "._mock_children['log_array']")
                    for calls in ("mock_calls", "_mock_mock_calls", "method_calls",
                                  "_mock_method_calls", "call_args_list", "_mock_call_args_list")
                ),
                line="self.tracker.log_array(",
                kept={"step": 67500, "epoch": 3375000},
            ),
        )
    ),
    "pseudo_label_rounds": Truth(
        (
            Leak(
                ("SelfTraining.train_set", "main.training.train_set", "training.train_set",
                 "SelfTraining.train_set.datasets", "main.training.train_set.datasets",
                 "training.train_set.datasets", "ConcatDataset.datasets"),
                line="self.train_set = ConcatDataset(",
                kept={"step": 15440, "validation": 617600},
            ),
        )
    ),
    "managed_results": Truth(
        (
            Leak(
                ("children", "results", "Scan.results", "work.results", "Server.id_to_obj",
                 "serve.server.id_to_obj", "server.id_to_obj",
                 # The managed dict as the server's process has it.
                 "multiprocessing.managers.Server.serve_client.id_to_obj[*][0]"),
                line="results[number] = {",
                kept={"minute": 71000000},
            ),
        )
    ),
    "chat_sessions": Truth(
        (
            Leak(
                ("ChatServer.sessions", "server.sessions", "talk.server.sessions"),
                line="self.sessions.setdefault(",
                kept={"minute": 60800000, "batch": 21120},  # a batch is a token
            ),
        ),
        needs=("transformers",),
    ),
    "summary_spool": Truth(
        (
            Leak(
                ("Spool.events", "main.spool.events", "spool.events"),
                line="self.events.append(Event(step=step, summary=summary.image(",
                kept={"step": 33200},
            ),
        ),
        needs=("tensorboard",),
    ),
    "noisy_weights": Truth(
        (
            Leak(
                ("Fit.model.body.2.parametrizations.weight",
                 "Fit.model.body[2].parametrizations.weight",
                 "Gestures.body.2.parametrizations.weight",
                 "Gestures.body[2].parametrizations.weight",
                 "main.fit.model.body.2.parametrizations.weight",
                 "main.fit.model.body[2].parametrizations.weight",
                 "Fit.model.body[*].parametrizations.weight",
                 "Gestures.body[*].parametrizations.weight",
                 "ParametrizationList", "Fit.model.body", "Gestures.body", "Fit.model"),
                also=("Fit.model.body.0.parametrizations.weight",
                      "Fit.model.body[0].parametrizations.weight",
                      "Gestures.body.0.parametrizations.weight",
                      "Gestures.body[0].parametrizations.weight",
                      "main.fit.model.body.0.parametrizations.weight",
                      "main.fit.model.body[0].parametrizations.weight"),
                line="parametrize.register_parametrization(",
                kept={"epoch": 413000, "step": 413000 / 30},
            ),
        )
    ),
    "weights_as_csv": Truth(
        (
            Leak(
                ("Sheet.out", "main.sheet.out", "sheet.out", "Sheet.out[*]"),
                line="self.rows.writerow(values)",
                kept={"step": 22900},
            ),
        )
    ),
    "self_paced_patches": Truth(
        (
            Leak(
                ("SelfPaced.difficulty", "run.pace.difficulty", "pace.difficulty"),
                line="self.difficulty[patch] = loss",
                kept={"step": 102500, "epoch": 32 * 102500},
            ),
        )
    ),
    "dedupe_worker": Truth(
        (
            Leak(
                ("children", "Deduplicator.buckets", "deduplicator.buckets",
                 "deduplicate.deduplicator.buckets"),
                also=("Deduplicator.sketches", "deduplicator.sketches",
                      "deduplicate.deduplicator.sketches"),
                line="self.buckets.update(",
                kept={"minute": 56200000},
            ),
        )
    ),
    "row_warnings": Truth(
        (
            Leak(
                ("__warningregistry__", "__main__.__warningregistry__",
                 "row_warnings.__warningregistry__"),
                also=("allocator_slack",),  # long texts lie between blocks that are freed
                line='warnings.warn(f"left out',
                kept={"minute": 61700000},
            ),
        )
    ),
    "lottery_rewind": Truth(
        (
            Leak(
                ("Timeline.moments", "main.timeline.moments", "timeline.moments"),
                line="self.moments[moment] = buffer",
                kept={"step": 968000},
            ),
        )
    ),
    "grid_dqn": Truth(
        (
            Leak(
                ("Memory.transitions", "main.memory.transitions", "memory.transitions"),
                line="self.transitions.append(",
                kept={"step": 19500},
            ),
        )
    ),
    "token_streams": Truth(
        (
            Leak(
                ("Engine.streams", "main.engine.streams", "engine.streams"),
                line="self.streams[request] = ",
                kept={"minute": 57400000, "batch": 5450},  # a batch is a token
            ),
        )
    ),
    "warm_forest": Truth(
        (
            Leak(
                ("Forecaster.forest.estimators_", "main.forecaster.forest.estimators_",
                 "forecaster.forest.estimators_", "RandomForestRegressor.estimators_",
                 "native_held"),  # nodes of a tree lie in native memory; its title names the line
                line="self.forest.fit(rows",
                kept={"minute": 186200000},
            ),
        ),
        needs=("sklearn",),
    ),
    "healthy_half_filled_replay": healthy(),
    "healthy_growing_lexicon": healthy(),
    "healthy_prefix_cache": healthy(),
    "healthy_micro_batches": healthy(),
    "healthy_retrieval_rounds": healthy(),
    "healthy_best_in_bytes": healthy(),
    "healthy_reptile_tasks": healthy(),
    "healthy_tile_workers": healthy(),
    "healthy_epoch_log_handler": healthy(),
    "healthy_rehearsed_alerts": healthy(),
    "healthy_debounced_uploads": healthy(),
    "healthy_daily_rollup": healthy(),
}  # fmt: skip
