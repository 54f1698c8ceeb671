"""Folders of images: both layouts, resizing, the cached copy, and their errors."""

from __future__ import annotations

import io
import json
import logging
import os
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from lotnet import data
from lotnet.data import folder, formats, progress_log
from lotnet.data.images import decode, decode_in_parts, read_header
from lotnet.errors import InputError

BOTH = {"train/cat": 3, "train/ant": 2, "test/cat": 1, "test/ant": 2}


def test_folder_with_train_and_test(image_folder, tmp_path):
    root = image_folder(BOTH)
    dataset = data.load(f"folder:{root}", tmp_path / "cache")
    assert dataset.classes == ("ant", "cat")
    assert dataset.shape == (3, 32, 32)
    assert dataset.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert dataset.test.labels.tolist() == [0, 0, 1]
    with Image.open(root / "train" / "cat" / "001.png") as image:
        assert np.array_equal(dataset.train.images[3].permute(1, 2, 0).numpy(), np.asarray(image))
    assert dataset.augmentation == data.Augmentation()


def test_folder_of_classes_is_split_by_seed(image_folder, tmp_path):
    name = f"folder:{image_folder({'a': 10, 'b': 15, 'train': 5})}"  # a class may be called train
    first, again = data.load(name, tmp_path / "one"), data.load(name, tmp_path / "two")
    assert first.classes == ("a", "b", "train")
    assert torch.bincount(first.test.labels).tolist() == [2, 3, 1]
    assert len(first.train) == 24
    assert torch.equal(first.test.images, again.test.images)


def test_images_are_resized_to_the_requested_side(image_folder, tmp_path):
    name = f"folder:{image_folder(BOTH, size=(50, 40))}"
    assert data.load(name, tmp_path, side=48).shape == (3, 48, 48)
    assert data.load(name, tmp_path, side=7).shape == (3, 7, 7)
    assert data.load(name, tmp_path, side=(7, 9), channels="grey").shape == (1, 7, 9)


def test_images_of_one_size_keep_their_pixels(image_folder, tmp_path):
    root = image_folder(BOTH, size=(50, 40))
    for file in root.rglob("*.png"):
        with Image.open(file) as image:
            image.convert("L").save(file)
    grey = data.load(f"folder:{root}", tmp_path / "cache")
    assert grey.shape == (1, 40, 50)
    with Image.open(root / "train" / "ant" / "000.png") as image:
        assert np.array_equal(grey.train.images[0, 0].numpy(), np.asarray(image))
    assert data.choose_shape(grey.name, tmp_path / "cache").words == "40 x 50 pixels, grey: as in the files"
    forced = data.load(grey.name, tmp_path / "cache", channels="rgb")
    assert torch.equal(forced.train.images, grey.train.images.expand(-1, 3, -1, -1))


def test_other_images_are_resized_with_a_word(image_folder, tmp_path):
    root = image_folder(BOTH, size=(50, 40))
    with Image.open(root / "test" / "cat" / "000.png") as image:
        image.convert("L").resize((20, 30)).save(root / "test" / "cat" / "000.png")
    name, cache = f"folder:{root}", tmp_path / "cache"
    assert data.choose_shape(name, cache).words == (
        "32 x 32 pixels, RGB: the files have 2 sizes and are resized (--data.side chooses another size); 1 of 8 files "
        "are grey and become RGB (--data.channels grey makes all grey)"
    )
    chosen = data.choose_shape(name, cache, side=16, channels="grey")
    assert chosen.shape == (1, 16, 16)
    assert chosen.words == (
        "16 x 16 pixels, grey: the files have 2 sizes and are resized; 7 of 8 files are in colour and become grey"
    )
    large = image_folder({"a": 2, "b": 2}, size=(folder.LARGEST_KEPT + 1, 8), name="large")
    assert data.choose_shape(f"folder:{large}", cache).shape == (3, 32, 32)


def saved(path, image, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


def sixteen_bit_color(width: int, height: int) -> bytes:
    """A PNG of 16 bits in each of three channels, which Pillow reads but does not write."""
    rows = b"".join(b"\0" + bytes(6 * width) for _ in range(height))
    return _png(struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0), zlib.compress(rows)).getvalue()


def test_conversions_are_said_and_counted(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3
    root, blank = tmp_path / "images", Image.new("RGB", (8, 8))
    saved(root / "a" / "0.png", blank.convert("RGBA"))
    saved(root / "a" / "1.png", blank.convert("P"), transparency=0)
    saved(root / "a" / "2.tif", blank.convert("CMYK"))
    saved(root / "b" / "0.jpg", blank, exif=exif)
    (root / "b" / "1.png").write_bytes(sixteen_bit_color(8, 8))
    saved(root / "b" / "2.png", Image.fromarray(np.zeros((8, 8), np.uint16)))
    name, cache = f"folder:{root}", tmp_path / "cache"
    alpha, bits = (
        "2 of 6 files have an alpha channel, which is dropped",
        "2 of 6 files are 16-bit and lose their lower 8",
    )
    turned = "1 of 6 files are rotated or mirrored as their EXIF data say"
    for _ in range(2):  # the second time, from the stored survey
        assert data.choose_shape(name, cache).words == (
            "8 x 8 pixels, RGB: 1 of 6 files are grey and become RGB (--data.channels grey makes all grey); "
            f"{alpha}; {bits} bits; 1 of 6 files are CMYK and become RGB; 1 of 6 files use a palette and become RGB; "
            f"{turned}"
        )
    assert data.choose_shape(name, cache, channels="grey").words == (
        f"8 x 8 pixels, grey: 5 of 6 files are in colour and become grey; {alpha}; {bits} bits; {turned}"
    )


def test_a_survey_of_an_earlier_version_is_made_again(image_folder, tmp_path):
    name = f"folder:{image_folder(BOTH)}"
    words = data.choose_shape(name, tmp_path).words
    (stored,) = tmp_path.glob("folder-*.json")
    content = json.loads(stored.read_text())
    stored.write_text(json.dumps({key: value for key, value in content.items() if key != "alpha"} | {"training": 5}))
    assert data.choose_shape(name, tmp_path).words == words
    assert json.loads(stored.read_text()) == content


def test_files_that_are_no_images_by_their_names_are_skipped(image_folder, tmp_path):
    root = image_folder(BOTH)
    (root / "train" / "cat" / "notes.txt").write_text("three cats")
    (root / "test" / "ant" / "labels").mkdir()
    (root / "test" / "ant" / "labels" / "0.json").write_text("{}")
    (root / "train" / "ant" / "000.png").rename(root / "train" / "ant" / "without suffix")
    dataset = data.load(f"folder:{root}", tmp_path / "cache")
    assert (len(dataset.train), len(dataset.test)) == (5, 3)
    assert data.folder_findings(f"folder:{root}") == [
        "2 files are skipped because their names do not end like an image's, for example cat/notes.txt"
    ]
    (root / "train" / "cat" / "photo.HEIC").write_bytes(b"an image that Pillow does not read")
    with pytest.raises(InputError, match=r"photo\.HEIC does not decode"):
        data.load(f"folder:{root}", tmp_path / "cache")


def test_a_class_of_other_files_holds_no_images(image_folder, tmp_path):
    root = image_folder({"a": 2, "b": 0})
    (root / "b" / "notes.txt").touch()
    skipped = r"1 file is skipped because its name does not end like an image's: notes\.txt"
    with pytest.raises(InputError, match=rf"b holds no images \({skipped}\): add some"):
        data.load(f"folder:{root}", tmp_path / "cache")


def test_an_empty_path_is_not_the_current_folder(image_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(image_folder(BOTH))
    with pytest.raises(
        InputError, match=r"folder: does not name a folder: write folder:PATH, or folder:\. for the current"
    ):
        data.load("folder:", tmp_path)
    assert len(data.load("folder:.", tmp_path).train) == 5
    assert data.public_name("folder:.") == "the folder of images"


def test_the_survey_is_made_again_when_a_file_changes(image_folder, tmp_path):
    root = image_folder(BOTH, size=(50, 40))
    assert data.choose_shape(f"folder:{root}", tmp_path).shape == (3, 40, 50)
    Image.new("RGB", (9, 9)).save(root / "train" / "cat" / "000.png")
    assert data.choose_shape(f"folder:{root}", tmp_path).shape == (3, 32, 32)


def test_the_cached_copy_is_used_until_the_images_change(image_folder, tmp_path, monkeypatch):
    root = image_folder(BOTH)
    cache, name = tmp_path / "cache", f"folder:{root}"
    first = data.load(name, cache)
    decoded = []
    monkeypatch.setattr(folder, "decode_in_parts", lambda *args: decoded.append(args) or decode_in_parts(*args))
    assert torch.equal(data.load(name, cache).train.images, first.train.images)
    assert not decoded
    file = root / "train" / "cat" / "000.png"
    os.utime(file, ns=(1, 1))
    data.load(name, cache)
    assert decoded
    (damaged,) = cache.glob("*.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert torch.equal(data.load(name, cache).train.images, first.train.images)


def test_images_behind_symbolic_links_are_watched(image_folder, tmp_path):
    root, links, cache = image_folder(BOTH), tmp_path / "links", tmp_path / "cache"
    links.mkdir()
    for part in ("train", "test"):
        (links / part).symlink_to(root / part)
    first = data.load(f"folder:{links}", cache)
    for file in root.rglob("*.png"):
        Image.new("RGB", (32, 32), "red").save(file)
    (changed,) = data.load(f"folder:{links}", cache).train.images.flatten(2).unique(dim=2).unique(dim=0)
    assert changed.flatten().tolist() == [255, 0, 0]
    assert len(first.train) == 5


def test_a_path_without_the_prefix_is_recognized(image_folder, tmp_path):
    root = image_folder(BOTH)
    with pytest.raises(InputError, match=f"for the images in that folder, write folder:{root}"):
        data.load(str(root), tmp_path)


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({"a": 3}, "only the class folder 'a': put the images into at least two folders"),
        ({"train/a": 3, "test/a": 2}, "only the class folder 'a'"),
        ({}, "is not a folder"),
        ({"a": 3, "b": 0}, "b holds no images: add some or remove the folder"),
        ({"a": 1, "b": 1}, "one image per class"),
        ({"train/a": 1, "train/b": 1}, "has train but no test: add test"),
        ({"train/a": 1, "train/b": 1, "val/a": 1, "val/b": 1}, "has train but no test: rename val to test"),
        ({"a/b": 3, "c/d": 3}, "a has the folder 'b' with images in it: put the images directly into the folders"),
        (
            {"cat": 3, "Cat": 3, "dog": 3},
            "'Cat' and 'cat', which differ only in case: .*, so merge them or rename one",
        ),
        ({"train/a": 1, "train/b": 1, "test/a": 1, "test/c": 1}, "test has the class 'c' that train has not"),
    ],
)
def test_wrong_folders_give_a_clear_error(counts, sentence, image_folder, tmp_path):
    root = image_folder(counts)
    with pytest.raises(InputError, match=sentence):
        data.load(f"folder:{root}", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("content", [b"", b"no image", "half a PNG"], ids=["empty", "text", "truncated"])
def test_an_undecodable_image_is_named(content, image_folder, tmp_path):
    root = image_folder({"a": 3, "b": 3})
    bad = root / "b" / "001.png"
    bad.write_bytes(bad.read_bytes()[:900] if isinstance(content, str) else content)
    with pytest.raises(InputError, match=r"b/001\.png does not decode as an 8- or 16-bit image: remove or replace it"):
        data.load(f"folder:{root}", tmp_path / "cache")


def test_system_files_are_skipped(image_folder, tmp_path):
    root = image_folder(BOTH)
    (root / "train" / ".DS_Store").write_bytes(b"x")
    (root / "train" / "cat" / "Thumbs.db").write_bytes(b"x")
    (root / "train" / ".hidden").mkdir()
    assert len(data.load(f"folder:{root}", tmp_path / "cache").train) == 5


def _png_claiming(width: int, height: int) -> io.BytesIO:
    return _png(struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), zlib.compress(b""))


def _png(header: bytes, pixels: bytes) -> io.BytesIO:
    def chunk(kind: bytes, content: bytes) -> bytes:
        length, checksum = len(content), zlib.crc32(kind + content)
        return struct.pack(">I", length) + kind + content + struct.pack(">I", checksum)

    end = chunk(b"IEND", b"")
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + end)


@pytest.mark.parametrize("side", [8_100, 10_000, 1_000_000])
def test_decompression_bombs_are_refused_unopened(side):
    with pytest.raises(InputError, match=r"bomb\.png .*: scale it down first"):
        decode(_png_claiming(side, side), (3, 32, 32), name="bomb.png")


def encoded(image: Image.Image, kind: str = "PNG", **options) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, kind, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_mode_becomes_rgb(mode):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    assert decode(encoded(Image.new(mode, (9, 9)), kind), (3, 9, 9)).shape == (3, 9, 9)


def test_sixteen_bit_grey_is_scaled_not_clipped():
    levels = np.array([[0, 256, 32768, 65535]] * 4, dtype=np.uint16)
    assert decode(encoded(Image.fromarray(levels)), (3, 4, 4))[:, 0].tolist() == [[0, 1, 128, 255]] * 3


@pytest.mark.parametrize(("mode", "kind"), [("F", "floating-point"), ("I", "32-bit")])
def test_pixels_without_a_white_are_refused_with_what_they_are(mode, kind):
    with pytest.raises(InputError, match=rf"depth\.tif has {kind} pixels, .*: convert it to 8 or 16 bits"):
        decode(encoded(Image.new(mode, (4, 4)), "TIFF"), (3, 4, 4), "depth.tif")


def test_a_grey_map_of_sixteen_bits_is_scaled():
    """Pillow gives its pixels the mode of 32-bit images."""
    file = io.BytesIO(b"P5 2 1 65535\n" + bytes([255, 255, 128, 0]))
    assert decode(file, (1, 1, 2)).flatten().tolist() == [255, 128]


def test_rectangular_images_are_centre_cropped():
    pixels = np.zeros((40, 100, 3), dtype=np.uint8)
    pixels[:, 30:70] = 255
    assert decode(encoded(Image.fromarray(pixels)), (3, 10, 10)).min() == 255


def test_downscaling_is_antialiased():
    checkers = ((np.indices((64, 64)).sum(0) % 2) * 255).astype(np.uint8)
    assert (decode(encoded(Image.fromarray(checkers)), (3, 8, 8)).int() - 127).abs().max() <= 6


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_grey_levels_survive_every_conversion_to_grey(mode):
    """Alpha is left out, and colours become luma, which keeps grey levels."""
    levels = np.array([[0, 255], [255, 0]] if mode == "1" else [[0, 100], [200, 255]], dtype=np.uint8)
    image = Image.fromarray(levels)
    image = image.convert("L" if mode == "LA" else "RGB" if mode == "RGBA" else mode)
    if mode.endswith("A"):
        image.putalpha(7)
    found = decode(encoded(image, "TIFF" if mode == "CMYK" else "PNG"), (1, 2, 2))[0]
    assert np.array_equal(found.numpy(), levels)


def test_headers_know_rotation_and_grey():
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    header = read_header(encoded(Image.new("L", (9, 4)), "JPEG", exif=exif))
    assert (header.height, header.width, header.is_grey, header.rotated) == (9, 4, True, True)
    assert decode(encoded(Image.new("L", (9, 4)), "JPEG", exif=exif), (1, 9, 4)).shape == (1, 9, 4)
    header = read_header(encoded(Image.new("RGBA", (9, 4))))
    assert (header.height, header.width, header.is_grey, header.rotated) == (4, 9, False, False)


def test_exif_orientation_is_applied():
    pixels = np.zeros((16, 16, 3), dtype=np.uint8)
    pixels[:8] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    turned = decode(encoded(Image.fromarray(pixels), "PNG", exif=exif), (3, 16, 16))
    assert turned[:, :8].max() == 0
    assert turned[:, 8:].min() == 255


def test_a_large_photograph_is_downscaled_like_a_small_one():
    ramp = np.broadcast_to(np.linspace(0, 255, 2000).astype(np.uint8)[:, None, None], (2000, 2000, 3))
    photo = decode(encoded(Image.fromarray(ramp.copy()), "JPEG", quality=95), (3, 16, 16))
    expected = torch.linspace(8, 247, 16)[None, :, None].expand(3, 16, 16)
    assert (photo - expected).abs().max() < 3


def test_our_pixel_limit_is_below_the_limit_of_pillow():
    assert formats.MAX_PIXELS < Image.MAX_IMAGE_PIXELS


def test_long_work_says_how_far_it_is(image_folder, tmp_path, monkeypatch, caplog):
    root = image_folder(BOTH)
    monkeypatch.setattr(progress_log, "EVERY", 0.0)
    with caplog.at_level(logging.INFO, "lotnet"):
        data.load(f"folder:{root}", tmp_path / "cache")
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == [f"reading headers in {root}: {n} of 8 images" for n in (1, 2)]
    assert len(said) == 7  # headers one by one; each split is decoded at once
