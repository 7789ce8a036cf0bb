"""Kinds of loops, one small program each, with the counts that its report has to give.

A program runs as ``main.py`` that imports this file, so its code counts as the user's own. What is
not named in ``Counts`` isn't compared.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset


@dataclass(frozen=True)
class Counts:
    """What a report's ``work`` has to say; batches outside of training are those of all phases."""

    steps: int
    epochs: int
    validations: int | set[int]
    """Several where loaders follow each other: rounds of evaluations, or passes."""
    train: int | None
    validation: int
    inference: int


PROGRAMS: dict[str, tuple[Callable[[], None], Counts]] = {}


def counts(
    steps: int,
    epochs: int,
    validations: int | set[int],
    *,
    train: int | None = None,
    validation: int = 0,
    inference: int = 0,
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Register a program with its true counts; ``train`` batches are the steps if not given."""

    def register(program: Callable[[], None]) -> Callable[[], None]:
        reported = Counts(steps, epochs, validations, train, validation, inference)
        PROGRAMS[program.__name__] = (program, reported)
        return program

    return register


# What programs have in common


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))


def samples(number: int) -> TensorDataset:
    return TensorDataset(torch.randn(number, 8), torch.randint(0, 4, (number,)))


def loader(batches: int, *, shuffle: bool = False) -> DataLoader:
    return DataLoader(samples(batches * 4), batch_size=4, shuffle=shuffle)


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 8), torch.randint(0, 4, (4,))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def backward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    nn.functional.cross_entropy(model(x), y).backward()
    time.sleep(0.001)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor):
    optimizer.zero_grad()
    backward(model, x, y)
    optimizer.step()


def train_on(model: nn.Module, optimizer: torch.optim.Optimizer, batches) -> None:
    model.train()
    for x, y in batches:
        step(model, optimizer, x, y)


@torch.no_grad()
def evaluate_on(model: nn.Module, batches) -> int:
    model.eval()
    return sum(int((model(x).argmax(-1) == y).sum()) for x, y in batches)


def tensors(batches: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches without a DataLoader."""
    for _ in range(batches):
        yield pair()


# Evaluations over loaders


@counts(40, 20, {20, 40}, validation=60)
def two_loaders_evaluated_each_epoch() -> None:
    model = network()
    optimizer = sgd(model)
    train, test = loader(2), loader(1)
    for _ in range(20):
        train_on(model, optimizer, train)
        evaluate_on(model, train)
        evaluate_on(model, test)


@counts(40, 20, 40, validation=60)
def two_splits_of_a_trainer_with_loaders_made_for_each() -> None:
    model = network()
    optimizer = sgd(model)
    train, test = samples(8), samples(4)

    def evaluate(split: str) -> int:
        data = {"train": train, "test": test}[split]
        return evaluate_on(model, DataLoader(data, batch_size=4))

    for _ in range(20):
        train_on(model, optimizer, DataLoader(train, batch_size=4))
        evaluate("train")
        evaluate("test")


@counts(36, 3, 7, validation=21)
def an_evaluation_before_the_first_epoch_and_two_in_each() -> None:
    model = network()
    optimizer = sgd(model)
    train, test = loader(12), loader(3)
    evaluate_on(model, test)
    for _ in range(3):
        for number, (x, y) in enumerate(train, 1):
            model.train()
            step(model, optimizer, x, y)
            if number % 6 == 0:
                evaluate_on(model, test)


@counts(30, 5, 5, validation=15)
def no_change_of_mode_and_no_grad_within_the_loop() -> None:
    model = network()
    optimizer = sgd(model)
    train, test = loader(6), loader(3)
    for _ in range(5):
        for x, y in train:
            step(model, optimizer, x, y)
        for x, _ in test:
            with torch.no_grad():
                model(x)


@counts(30, 5, 5, validation=15)
def a_model_copied_for_each_evaluation() -> None:
    model = network()
    optimizer = sgd(model)
    train, test = loader(6), loader(3)
    for _ in range(5):
        train_on(model, optimizer, train)
        evaluate_on(copy.deepcopy(model), test)


@counts(40, 10, 10, validation=20)
def k_fold_with_loaders_made_beforehand() -> None:
    folds = [(loader(4), loader(2)) for _ in range(5)]
    for train, test in folds:
        model = network()
        optimizer = sgd(model)
        for _ in range(2):
            train_on(model, optimizer, train)
            evaluate_on(model, test)


@counts(48, 12, 12, validation=12)
def k_fold_over_subsets() -> None:
    data = samples(20)
    for fold in range(4):
        held_out = range(fold * 4, fold * 4 + 4)
        rest = [i for i in range(20) if i not in held_out]
        model = network()
        optimizer = sgd(model)
        for _ in range(3):
            train_on(model, optimizer, DataLoader(Subset(data, rest), batch_size=4))
            evaluate_on(model, DataLoader(Subset(data, list(held_out)), batch_size=4))


@counts(0, 0, 12, validation=48)
def evaluations_alone() -> None:
    models, test = [network() for _ in range(3)], loader(4)
    for _ in range(4):
        for model in models:
            evaluate_on(model, test)


@counts(24, 4, {4, 5}, validation=15)
def an_early_stop_and_a_last_test() -> None:
    model = network()
    optimizer = sgd(model)
    train, validation, test = loader(6), loader(3), loader(3)
    for epoch in range(100):
        train_on(model, optimizer, train)
        evaluate_on(model, validation)
        if epoch == 3:
            break
    evaluate_on(model, test)


# Evaluations without a loader


@counts(240, 0, 7, validation=140)
def a_copied_model_tested_last() -> None:
    model = network()
    optimizer = sgd(model)
    for _ in range(6):
        train_on(model, optimizer, tensors(40))
        evaluate_on(model, tensors(20))
    evaluate_on(copy.deepcopy(model), tensors(20))


@counts(240, 0, 7, validation=140)
def the_same_model_tested_last() -> None:
    model = network()
    optimizer = sgd(model)
    for _ in range(6):
        train_on(model, optimizer, tensors(40))
        evaluate_on(model, tensors(20))
    evaluate_on(model, tensors(20))


@counts(240, 0, 7, validation=140)
def a_model_reloaded_for_the_last_test() -> None:
    model = network()
    optimizer = sgd(model)
    for _ in range(6):
        train_on(model, optimizer, tensors(40))
        evaluate_on(model, tensors(20))
    best = network()
    best.load_state_dict(model.state_dict())
    evaluate_on(best, tensors(20))


@counts(60, 0, 6, validation=60)
def two_splits_in_one_function() -> None:
    """As nanoGPT's ``estimate_loss``."""
    model = network()
    optimizer = sgd(model)

    @torch.no_grad()
    def estimate_loss() -> None:
        model.eval()
        for _ in ("train", "val"):
            for x, _ in tensors(5):
                model(x)
        model.train()

    for number in range(60):
        if number % 10 == 0:
            estimate_loss()
        step(model, optimizer, *pair())


@counts(60, 0, 12, validation=60)
def two_splits_by_two_calls() -> None:
    model = network()
    optimizer = sgd(model)

    def evaluate(split: str) -> None:
        evaluate_on(model, tensors(3 if split == "test" else 7))
        model.train()

    for number in range(60):
        step(model, optimizer, *pair())
        if number % 10 == 9:
            evaluate("train")
            evaluate("test")


@counts(120, 0, 6, validation=60)
def no_grad_alone() -> None:
    model = network()
    optimizer = sgd(model)
    for _ in range(6):
        for x, y in tensors(20):
            step(model, optimizer, x, y)
        with torch.no_grad():
            for x, _ in tensors(10):
                model(x)


@counts(120, 0, 6, validation=60)
def inference_mode_alone() -> None:
    model = network()
    optimizer = sgd(model)

    @torch.inference_mode()
    def check() -> None:
        for x, _ in tensors(10):
            model(x)

    for _ in range(6):
        for x, y in tensors(20):
            step(model, optimizer, x, y)
        check()


@counts(100, 0, 5, validation=5)
def one_pass_over_everything_held_out() -> None:
    model = network()
    optimizer = sgd(model)
    held_out = torch.randn(64, 8)
    for number in range(100):
        model.train()
        step(model, optimizer, *pair())
        if number % 20 == 19:
            model.eval()
            with torch.no_grad():
                model(held_out)


@counts(60, 0, 3, validation=30)
def a_predict_method_that_sets_the_mode_each_time() -> None:
    model = network()
    optimizer = sgd(model)

    def predict(x: torch.Tensor) -> torch.Tensor:
        model.eval()
        with torch.no_grad():
            return model(x)

    for _ in range(3):
        train_on(model, optimizer, tensors(20))
        for x, _ in tensors(10):
            predict(x)


@counts(60, 0, 3, validation=30)
def a_model_of_parts() -> None:
    encoder, decoder = network(), nn.Linear(4, 8)
    both = nn.ModuleList([encoder, decoder])
    optimizer = sgd(both)
    for _ in range(3):
        both.train()
        for x, _ in tensors(20):
            optimizer.zero_grad()
            (decoder(encoder(x)) - x).pow(2).mean().backward()
            optimizer.step()
        both.eval()
        with torch.no_grad():
            for x, _ in tensors(10):
                decoder(encoder(x))


# What looks like an evaluation and is none


@counts(80, 0, 0)
def a_frozen_teacher() -> None:
    teacher, model = network().eval(), network()
    optimizer = sgd(model)
    for x, _ in tensors(80):
        with torch.no_grad():
            target = (teacher(x) + teacher(x.flip(0)).flip(0)).softmax(-1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()


@counts(40, 0, 0)
def episodes_with_an_update_after_each() -> None:
    policy = network()
    optimizer = sgd(policy)
    for _ in range(40):
        states, actions = [], []
        for _ in range(15):
            state = torch.randn(1, 8)
            with torch.no_grad():
                actions.append(torch.distributions.Categorical(logits=policy(state)).sample())
            states.append(state)
        step(policy, optimizer, torch.cat(states), torch.cat(actions))


@counts(160, 0, 0)
def rollouts_with_several_updates_after_each() -> None:
    policy = network()
    optimizer = sgd(policy)
    for _ in range(10):
        states, actions = [], []
        for _ in range(64):
            state = torch.randn(1, 8)
            with torch.no_grad():
                actions.append(policy(state).argmax(-1))
            states.append(state)
        for _ in range(16):
            step(policy, optimizer, torch.cat(states), torch.cat(actions))


@counts(60, 0, 0)
def an_accuracy_after_each_step() -> None:
    model = network()
    optimizer = sgd(model)
    for x, y in tensors(60):
        step(model, optimizer, x, y)
        with torch.no_grad():
            (model(x).argmax(-1) == y).float().mean()


# Kinds of training


@counts(12, 4, 0, train=48)
def gradients_accumulated_over_four_batches() -> None:
    model = network()
    optimizer, train = sgd(model), loader(12)
    for _ in range(4):
        for number, (x, y) in enumerate(train, 1):
            backward(model, x, y)
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()


@counts(3, 5, 6, train=15, validation=6)
def gradients_accumulated_across_epochs_while_warming_up() -> None:
    """As in ultralytics: batches of the whole training make so many as a nominal batch has."""
    model = network()
    optimizer, train, test = sgd(model), loader(3), loader(1)
    done = since = 0
    for _ in range(5):
        model.train()
        for x, y in train:
            backward(model, x, y)
            done, since = done + 1, since + 1
            if since >= 5:
                optimizer.step()
                optimizer.zero_grad()
                since = 0
        evaluate_on(copy.deepcopy(model), test)
    evaluate_on(copy.deepcopy(model), test)


class _Repeated:
    def __init__(self, sampler) -> None:
        self.sampler = sampler

    def __iter__(self) -> Iterator:
        while True:
            yield from iter(self.sampler)


class EndlessLoader(DataLoader):
    """Keeps its workers over all epochs, as those of timm and ultralytics do."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        object.__setattr__(self, "batch_sampler", _Repeated(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self) -> Iterator:
        for _ in range(len(self)):
            yield next(self.iterator)


@counts(3, 5, 6, train=15, validation=12)
def loaders_that_keep_their_iterators() -> None:
    model = network()
    optimizer = sgd(model)
    train, test = EndlessLoader(samples(12), 4, num_workers=1), EndlessLoader(samples(8), 4)
    done = 0
    for _ in range(5):
        model.train()
        for x, y in train:
            backward(model, x, y)
            done += 1
            if done % 5 == 0:
                optimizer.step()
                optimizer.zero_grad()
        evaluate_on(copy.deepcopy(model), test)
    evaluate_on(copy.deepcopy(model), test)


class OnDevice(DataLoader):
    """Changes what torch's iterator yields."""

    def __iter__(self) -> Iterator:
        for x, y in super().__iter__():
            yield x.float(), y


@counts(15, 5, 5, validation=10)
def loaders_that_change_batches() -> None:
    model = network()
    optimizer, train, test = sgd(model), OnDevice(samples(12), 4), OnDevice(samples(8), 4)
    for _ in range(5):
        train_on(model, optimizer, train)
        evaluate_on(model, test)


@counts(60, 5, 0)
def two_optimizers_over_a_loader() -> None:
    generator, critic = network(), network()
    first, second, train = sgd(generator), sgd(critic), loader(12)
    for _ in range(5):
        for x, y in train:
            step(critic, second, x, y)
            step(generator, first, x, y)


@counts(60, 0, 0)
def two_optimizers_without_a_loader() -> None:
    generator, critic = network(), network()
    first, second = sgd(generator), sgd(critic)
    for x, y in tensors(60):
        step(critic, second, x, y)
        step(generator, first, x, y)


@counts(90, 9, 9, validation=18)
def several_models_one_after_the_other() -> None:
    train, test = loader(10), loader(2)
    kept = []
    for _ in range(3):
        model = network()
        optimizer = sgd(model)
        for _ in range(3):
            train_on(model, optimizer, train)
            evaluate_on(model, test)
        kept.append((model, optimizer))


@counts(72, 24, 4, validation=12)
def federated_rounds() -> None:
    clients, test = [loader(3) for _ in range(3)], loader(3)
    model = network()
    for _ in range(4):
        states = []
        for client in clients:
            local = copy.deepcopy(model)
            optimizer = sgd(local)
            for _ in range(2):
                train_on(local, optimizer, client)
            states.append(local.state_dict())
        mean = {k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]}
        model.load_state_dict(mean)
        evaluate_on(model, test)


class Trainer:
    """Hides the outer loop, and asks an iterator by hand."""

    def __init__(self, model: nn.Module, train: DataLoader, test: DataLoader) -> None:
        self.model, self.train, self.test = model, train, test
        self.optimizer = sgd(model)

    def fit(self, epochs: int) -> None:
        for _ in range(epochs):
            self._epoch()
            evaluate_on(self.model, self.test)

    def _epoch(self) -> None:
        self.model.train()
        batches = iter(self.train)
        for _ in range(len(self.train)):
            step(self.model, self.optimizer, *next(batches))


@counts(40, 8, 8, validation=24)
def a_trainer_that_never_exhausts_its_loader() -> None:
    Trainer(network(), loader(5), loader(3)).fit(8)


@counts(50, 10, 5, validation=10)
def a_trainer_counted_by_steps() -> None:
    """As minGPT and lucidrains' trainers: an endless iterator, evaluated every so many steps."""
    model = network()
    optimizer, train, test = sgd(model), loader(5), loader(2)

    def cycle(batches: DataLoader) -> Iterator:
        while True:
            yield from batches

    endless = cycle(train)
    for number in range(1, 51):
        model.train()
        step(model, optimizer, *next(endless))
        if number % 10 == 0:
            evaluate_on(model, test)


@counts(20, 4, 0)
def epochs_left_by_break() -> None:
    model = network()
    optimizer, train = sgd(model), loader(50)
    for _ in range(4):
        for number, (x, y) in enumerate(train, 1):
            step(model, optimizer, x, y)
            if number == 5:
                break


@counts(20, 4, 4, validation=8)
def a_training_that_is_resumed() -> None:
    model = network()
    optimizer, train, test = sgd(model), loader(5), loader(2)
    optimizer.load_state_dict(sgd(model).state_dict())
    for _ in range(6, 10):
        train_on(model, optimizer, train)
        evaluate_on(model, test)


@counts(60, 0, 3, validation=12)
def batches_by_a_generator() -> None:
    model = network()
    optimizer = sgd(model)
    data, labels = torch.randn(80, 8), torch.randint(0, 4, (80,))

    def batches(number: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = torch.randperm(80)
        for i in range(number):
            mine = order[i * 4 : i * 4 + 4]
            yield data[mine], labels[mine]

    for _ in range(3):
        train_on(model, optimizer, batches(20))
        evaluate_on(model, batches(4))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for _ in range(20):
            yield torch.randn(8), 1


@counts(20, 4, 4, validation=20)
def an_iterable_dataset() -> None:
    model = network()
    optimizer, train, test = sgd(model), DataLoader(Stream(), 4), DataLoader(Stream(), 4)
    for _ in range(4):
        train_on(model, optimizer, train)
        evaluate_on(model, test)


@counts(20, 4, 4, validation=8)
def loaders_made_every_epoch() -> None:
    model = network()
    optimizer = sgd(model)
    for _ in range(4):
        train_on(model, optimizer, loader(5, shuffle=True))
        evaluate_on(model, loader(2))


@counts(60, 1, 0)
def a_loader_kept_by_itertools_cycle() -> None:
    model = network()
    optimizer, endless = sgd(model), itertools.cycle(loader(5))
    for x, y in itertools.islice(endless, 60):
        step(model, optimizer, x, y)


# Other threads


@counts(30, 5, 5, validation=15)
def everything_in_another_thread() -> None:
    def work() -> None:
        model = network()
        optimizer, train, test = sgd(model), loader(6), loader(3)
        for _ in range(5):
            train_on(model, optimizer, train)
            evaluate_on(model, test)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@counts(80, 0, 0)
def four_threads_that_train_a_model_each() -> None:
    def work(_: int) -> None:
        model = network()
        optimizer = sgd(model)
        for x, y in tensors(20):
            step(model, optimizer, x, y)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


@counts(60, 0, 0)
def trials_in_a_thread_each() -> None:
    def trial() -> None:
        model = network()
        optimizer = sgd(model)
        for x, y in tensors(20):
            step(model, optimizer, x, y)

    threads = [threading.Thread(target=trial) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()


@counts(30, 5, 0)
def a_thread_that_evaluates_between_the_epochs() -> None:
    """The forward pass of a thread doesn't end the loop of the one that trains."""
    model = network()
    optimizer, train = sgd(model), loader(6)

    def evaluate() -> None:
        with torch.no_grad():
            model(torch.randn(64, 8))

    for _ in range(5):
        train_on(model, optimizer, train)
        thread = threading.Thread(target=evaluate)
        thread.start()
        thread.join()


# Passes without any training


@counts(0, 0, 0, inference=200)
def a_server_set_to_evaluation_mode() -> None:
    model = network().eval()
    for x, _ in tensors(200):
        with torch.no_grad():
            model(x)
        time.sleep(0.001)


@counts(0, 0, 0, inference=200)
def a_server_that_never_set_the_mode() -> None:
    model = network()

    @torch.inference_mode()
    def answer(x: torch.Tensor) -> torch.Tensor:
        return model(x)

    for x, _ in tensors(200):
        answer(x)
        time.sleep(0.001)


@counts(0, 0, 0, inference=200)
def an_engine_of_decode_steps() -> None:
    embed, decode = nn.Embedding(16, 8), network()
    for part in (embed, decode):
        part.train(False)
    with torch.inference_mode():
        for _ in range(20):
            token = torch.zeros(1, dtype=torch.long)
            for _ in range(10):
                token = decode(embed(token)).argmax(-1)


@counts(0, 0, 0, inference=200)
def an_engine_in_a_thread_of_its_own() -> None:
    model = network().eval()

    def work() -> None:
        for x, _ in tensors(200):
            with torch.no_grad():
                model(x)
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
