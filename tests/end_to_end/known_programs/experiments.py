"""What libraries of experiments and pictures keep."""

import tempfile
import warnings

from rounds import rounds, run

TEXT = "x" * 4000


def optuna_trials_in_memory(leaks):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))

    def objective(trial):
        if leaks:
            trial.set_user_attr("log", f"{TEXT * 4}{trial.number}")
        return trial.suggest_float("x", 0, 1)

    for _ in rounds():
        study.optimize(objective, n_trials=3)


def gymnasium_render_collection(leaks):
    import gymnasium
    import numpy as np
    from gymnasium.wrappers import RenderCollection

    class World(gymnasium.Env):
        render_mode = "rgb_array"
        action_space = observation_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 0, 0.0, False, False, {}

        def render(self):
            return np.zeros((64, 64, 3), np.uint8)

    World.metadata = {"render_modes": ["rgb_array"]}
    env = RenderCollection(World())
    env.reset()
    for _ in rounds():
        for _ in range(3):
            env.step(0)
        if not leaks:
            env.render()


def bokeh_stream(leaks):
    from bokeh.models import ColumnDataSource

    source = ColumnDataSource({"x": [], "y": []})
    for i in rounds():
        new = [float(i * 500 + j) for j in range(500)]
        source.stream({"x": new, "y": list(new)}, rollover=None if leaks else 1000)


def matplotlib_axes_artists(leaks):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    (line,) = axes.plot([0.0] * 500)
    for i in rounds():
        if leaks:
            axes.plot([float(i)] * 500)
        else:
            line.set_ydata([float(i)] * 500)


def _animation(frames, **options):
    from matplotlib.animation import FuncAnimation
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    FigureCanvasAgg(figure)
    (line,) = figure.add_subplot().plot([])
    moving = FuncAnimation(figure, lambda frame: [line], frames=frames, **options)
    moving._init_draw()
    return moving


def matplotlib_animation_repeats(leaks):
    import numpy as np

    read = (np.zeros(2000) for _ in range(100_000))
    moving = _animation(read, cache_frame_data=False, repeat=leaks)
    frames = moving.new_frame_seq()
    for _ in rounds():
        moving._draw_next_frame(next(frames), blit=False)


def torch_fork_buffer(leaks):
    import torch
    from torch.utils.data.datapipes.iter import IterableWrapper

    warnings.simplefilter("ignore")
    source = IterableWrapper(range(100)).map(lambda i: torch.full((4000,), float(i)))
    one, two = (iter(branch) for branch in source.fork(2, buffer_size=-1))
    for _ in rounds():
        next(one)
        if not leaks:
            next(two)


def torch_recording_observer(leaks):
    import torch
    from torch.ao.quantization.observer import MinMaxObserver, RecordingObserver

    warnings.simplefilter("ignore")
    observer = RecordingObserver() if leaks else MinMaxObserver()
    for i in rounds():
        observer(torch.full((4000,), float(i)))


def tensorboard_accumulator(leaks):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
        loaded = EventAccumulator(folder, size_guidance={"scalars": 0 if leaks else 10})
        for i in rounds():
            for j in range(100):
                writer.add_scalar("loss", 1.0, 100 * i + j)
            writer.flush()
            loaded.Reload()


def tensorboardx_scalars(leaks):
    import tensorboardX

    with tempfile.TemporaryDirectory() as folder, tensorboardX.SummaryWriter(folder) as writer:
        for i in rounds():
            for j in range(60):
                writer.add_scalars("loss", {"train": 1.0, "held": 2.0}, 60 * i + j)
            if not leaks:
                writer.scalar_dict.clear()


def hyperopt_trials(leaks):
    import hyperopt
    import numpy as np

    trials = hyperopt.Trials()
    for i in rounds():
        if not leaks:
            trials = hyperopt.Trials()
        hyperopt.fmin(
            lambda x, i=i: {"loss": x, "status": "ok", "log": f"{TEXT * 4}{i}"},
            hyperopt.hp.uniform("x", 0, 1),
            algo=hyperopt.rand.suggest,
            max_evals=len(trials) + 2,
            trials=trials,
            verbose=False,
            show_progressbar=False,
            rstate=np.random.default_rng(i),
        )


def numba_specialisations(leaks):
    import numba

    @numba.njit
    def first(x):
        return x[0]

    first((1, 2))
    for i in rounds(40):
        first((1,) * (i + 3) if leaks else (1, 2))


def ipywidgets_open_widgets(leaks):
    import ipywidgets

    for _ in rounds():
        for _ in range(20):
            widget = ipywidgets.IntSlider()
            if not leaks:
                for part in (widget, widget.layout, widget.style):
                    part.close()


if __name__ == "__main__":
    run(globals())
