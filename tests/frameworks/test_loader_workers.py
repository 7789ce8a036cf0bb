"""What a data set keeps that doesn't go well with workers."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from leakscope.capture.frameworks.training import DEEPEST, worker_warnings


class Photos(Dataset[Any]):
    def __init__(self, **kept: Any) -> None:
        self.__dict__.update(kept)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index


def reported(start: str = "fork", workers: int = 2, **kept: Any) -> list[str]:
    loader = DataLoader(
        Photos(**kept), num_workers=workers, multiprocessing_context=start if workers else None
    )
    return [sentence.partition(":")[0] for sentence in worker_warnings(loader)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (4, 4)).save(tmp_path / "image.png")
    return tmp_path / "image.png"


@pytest.fixture
def lazy(path: Path) -> Iterator[Any]:
    from PIL import Image

    with Image.open(path) as image:
        yield image


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_images_that_were_opened_and_never_loaded(lazy: Any, start: str) -> None:
    expected = ["Photos.images keeps open PIL images beside 2 DataLoader workers"]
    assert reported(start, images=[lazy, lazy]) == expected
    assert reported(start, images={"a": (lazy,)}) == expected


@pytest.mark.parametrize(
    ("start", "from_memory", "is_listed"),
    [("fork", False, True), ("fork", True, False), ("spawn", False, False)],
)
def test_images_of_open_files_are_garbled_by_forked_workers(
    path: Path, start: str, *, from_memory: bool, is_listed: bool
) -> None:
    from PIL import Image

    source: Any = io.BytesIO(path.read_bytes()) if from_memory else path
    with Image.open(source) as image:
        loader = DataLoader(Photos(images=[image]), num_workers=1, multiprocessing_context=start)
        (sentence,) = worker_warnings(loader)
    assert ("garbles what they read" in sentence) is is_listed
    assert "each worker decodes its own copy" in sentence


def test_loaded_images_cost_something_where_they_are_copied(path: Path) -> None:
    from PIL import Image

    with Image.open(path) as image:
        image.load()
        assert reported("fork", images=[image]) == []
        assert reported("spawn", images=[image]) == [
            "Photos.images keeps PIL images beside 2 DataLoader workers"
        ]


def test_open_files_share_their_position_with_forked_workers(path: Path) -> None:
    with path.open("rb") as file:
        assert reported("fork", file=file) == [
            "Photos.file keeps open files beside 2 DataLoader workers"
        ]
        assert reported("spawn", file=file) == []
    assert reported("fork", file=file) == []


def test_what_lies_inside_a_subset_is_found(lazy: Any) -> None:
    loader = DataLoader(
        Subset(Photos(images=[lazy]), [0]), num_workers=1, multiprocessing_context="fork"
    )
    (sentence,) = worker_warnings(loader)
    assert sentence.startswith("Photos.images keeps open PIL images beside 1 DataLoader worker")


class Sample:
    __slots__ = ("image", "label")

    def __init__(self, image: Any) -> None:
        self.image = image  # no label


class Pair(NamedTuple):
    image: Any
    label: int


class Rows(list[Any]):
    """As a library's own list."""


@pytest.mark.parametrize(
    "wrap",
    [
        lambda data: data,
        lambda data: Subset(data, [0]),
        lambda data: ConcatDataset([data]),
        lambda data: Subset(ConcatDataset([Subset(data, [0]), Photos()]), [0]),
    ],
    ids=["plain", "subset", "concatenated", "subset of both"],
)
@pytest.mark.parametrize(
    ("kept", "name"),
    [
        (lambda image: [{"image": image, "label": 0}], "Photos.samples"),
        (lambda image: [(0, image)], "Photos.samples"),
        (lambda image: {"train": [Pair(image, 0)]}, "Photos.samples"),
        (lambda image: Rows([OrderedDict(image=image)]), "Photos.samples"),
        (lambda image: [Sample(image)], "Sample.image"),
    ],
    ids=["dicts", "tuples", "named tuples", "subclasses", "slots"],
)
def test_samples_of_any_shape_inside_any_data_sets_are_found(
    lazy: Any, wrap: Any, kept: Any, name: str
) -> None:
    data = wrap(Photos(samples=kept(lazy)))
    (sentence,) = worker_warnings(DataLoader(data, num_workers=1, multiprocessing_context="fork"))
    assert sentence.startswith(f"{name} keeps open PIL images beside 1 DataLoader worker")


def chat_with(image: Any, number: int) -> dict[str, Any]:
    """Return a sample as vision-language trainers take it."""
    question = [{"type": "image", "image": image}, {"type": "text", "text": f"Which {number}?"}]
    answer = [{"type": "text", "text": "That one."}]
    reported = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"messages": [{"role": "system", "content": "Look."}, *reported]}


@pytest.mark.parametrize("is_list", [True, False])
def test_pictures_in_the_messages_of_chats_are_found(lazy: Any, *, is_list: bool) -> None:
    chats = [chat_with(None if number < 20 else lazy, number) for number in range(40)]
    data: Any = chats if is_list else Photos(samples=chats)
    (sentence,) = worker_warnings(DataLoader(data, num_workers=1, multiprocessing_context="fork"))
    name = "The data set" if is_list else "Photos.samples"
    assert sentence.startswith(f"{name} keeps open PIL images beside 1 DataLoader worker")


def test_what_lies_far_from_the_data_is_not_looked_at(lazy: Any) -> None:
    far: Any = lazy
    for _ in range(DEEPEST):
        far = [far]
    assert reported(images=far) == []


def test_nothing_is_reported_of_paths_or_without_workers(lazy: Any, path: Path) -> None:
    assert reported(paths=[str(path)] * 1000, count=3) == []
    assert reported(workers=0, images=[lazy]) == []
    assert worker_warnings(None) == []
    assert worker_warnings([1, 2]) == []


def test_nothing_of_the_users_is_run() -> None:
    class Touchy(Photos):
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __iter__(self) -> Any:
            raise AssertionError

    class TouchyRows(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError

        def __getitem__(self, index: Any) -> Any:
            raise AssertionError

    assert reported(inner=Touchy(), items=[Touchy()], rows=TouchyRows([1])) == []
