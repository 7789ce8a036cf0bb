"""What libraries of experiments and pictures keep."""

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


def matplotlib_animation_frames(leaks):
    import numpy as np

    def read():
        while True:
            yield np.zeros(2000)

    moving = _animation(read, cache_frame_data=leaks, save_count=100_000)
    frames = moving.new_frame_seq()
    for _ in rounds():
        moving._draw_next_frame(next(frames), blit=False)


def matplotlib_animation_repeats(leaks):
    import numpy as np

    read = (np.zeros(2000) for _ in range(100_000))
    moving = _animation(read, cache_frame_data=False, repeat=leaks)
    frames = moving.new_frame_seq()
    for _ in rounds():
        moving._draw_next_frame(next(frames), blit=False)


if __name__ == "__main__":
    run(globals())
