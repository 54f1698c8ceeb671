"""What is said about a data set: few images, missing classes, and images that are in both splits."""

from __future__ import annotations

import torch
from toy_data import random_split

from lotnet.data import Dataset, Split, findings, folder_findings
from lotnet.data.findings import duplicates


def test_a_sound_data_set_has_no_findings():
    assert findings(Dataset("toy", random_split(80, 4), random_split(8, 4, seed=1), ("a", "b", "c", "d"))) == []


def test_many_classes_are_counted_and_some_are_named():
    names = tuple("abcdefgh")
    data = Dataset("toy", random_split(80, 8), random_split(8, 2, seed=1), names)
    assert findings(data) == [
        "8 classes have fewer than 20 training images: a (10), b (10), c (10), d (10), e (10) and 3 more",
        "6 classes have no test images: c, d, e, f, g and 1 more",
    ]


def test_duplicates_are_counted_in_the_test_images_whatever_their_label():
    train, test = random_split(40, 2), random_split(6, 2, seed=1)
    images = test.images.clone()
    images[1] = images[4] = train.images[7]
    images[2] = train.images[8]
    images[2, 0, 0, 0] ^= 1  # nearly the same is not the same
    labels = torch.zeros(6, dtype=torch.int64)
    assert duplicates(Dataset("toy", train, Split(images, labels), ("a", "b"))) == 2


def test_folders_that_are_not_read_are_named(image_folder):
    root = image_folder({"train/a": 2, "train/b": 2, "test/a": 1, "test/b": 1})
    for name in ("labels", ".thumbnails", "empty"):
        (root / name).mkdir()
    (root / "labels" / "a.txt").touch()
    (root / ".thumbnails" / "a.png").touch()
    (root / "test" / "a" / "notes").mkdir()
    assert folder_findings(f"folder:{root}") == []
    (root / "val" / "a").mkdir(parents=True)
    (root / "val" / "a" / "0.JPG").touch()
    assert folder_findings(f"folder:{root}") == ["the folder val beside train and test is not part of the data set"]
    (root / "extra").mkdir()
    (root / "extra" / "0.png").touch()
    (note,) = folder_findings(f"folder:{root}")
    assert note == "the folders extra, val beside train and test are not part of the data set"
    assert folder_findings(f"folder:{root / 'train'}") == [], "there, folders are classes"
    assert folder_findings("digits") == []


def test_levels_that_are_all_small_are_noted():
    """As from 12-bit values in 16-bit files."""
    train, test = random_split(80, 4), random_split(8, 4, seed=1)
    dark = Dataset("toy", Split(train.images // 16, train.labels), test, ("a", "b", "c", "d"))
    (note,) = findings(dark)
    assert note.startswith("no level of the training images is above 15 of 255: ")
    assert note.endswith("such as 12 bits in 16, most levels are lost, so rescale them to the whole range first")


def test_small_classes_are_laid_to_the_limit_that_made_them():
    data = Dataset("toy", random_split(16, 2), random_split(8, 2, seed=1), ("a", "b"), limit=16)
    assert findings(data) == ["with a limit of 16 images, 2 classes have fewer than 20 training images: a (8), b (8)"]
