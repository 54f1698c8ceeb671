"""Tiny ImageNet's folder layout, as small synthetic files."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from lotnet import data
from lotnet.errors import InputError

WNIDS = ("n03", "n01", "n02")


@pytest.fixture
def tiny(tmp_path):
    """Three classes of two images, each image of one grey level; the first image of n01 is a grey JPEG."""
    root = tmp_path / "tiny-imagenet-200"
    (root / "val" / "images").mkdir(parents=True)
    lines = []
    for number, wnid in enumerate(WNIDS):
        folder = root / "train" / wnid / "images"
        folder.mkdir(parents=True)
        (folder.parent / f"{wnid}_boxes.txt").write_text("x\t0\t0\t1\t1\n")
        for copy in range(2):
            mode = "L" if (wnid, copy) == ("n01", 0) else "RGB"
            level = np.full((64, 64), 40 * number, np.uint8)
            Image.fromarray(level).convert(mode).save(folder / f"{wnid}_{copy}.JPEG")
        Image.fromarray(level).convert("RGB").save(root / "val" / "images" / f"val_{number}.JPEG")
        lines.append(f"val_{number}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    return root


@pytest.mark.parametrize("listed", [True, False], ids=["wnids.txt", "folders"])
@pytest.mark.parametrize("outer", [True, False], ids=["outer", "inner"])
def test_layout(tiny, listed, outer, tmp_path):
    if not listed:
        (tiny / "wnids.txt").unlink()
    data.prepare("tiny-imagenet", str(tiny.parent if outer else tiny), root=tmp_path)
    dataset = data.load("tiny-imagenet", tmp_path)
    assert dataset.classes == ("n01", "n02", "n03")
    assert dataset.shape == (3, 64, 64)
    assert dataset.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert dataset.test.labels.tolist() == [2, 0, 1]
    assert dataset.train.images[:, 0, 0, 0].tolist() == [40, 40, 80, 80, 0, 0]
    assert dataset.test.images[:, 2, 5, 5].tolist() == [0, 40, 80]


@pytest.mark.parametrize("line", ["val_0.JPEG\tn99\t0\n", "val_0.JPEG\n", "../../secret\tn01\n"])
def test_wrong_annotations_give_a_clear_error(tiny, line, tmp_path):
    (tiny / "val" / "val_annotations.txt").write_text(line)
    with pytest.raises(InputError, match="names no known class: unpack it again"):
        data.prepare("tiny-imagenet", str(tiny), root=tmp_path)


def test_missing_image_is_named(tiny, tmp_path):
    (tiny / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(InputError, match=r"val_1\.JPEG does not decode"):
        data.prepare("tiny-imagenet", str(tiny), root=tmp_path)
