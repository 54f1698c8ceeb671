"""`lotnet export`."""

import json
from typing import Literal

import torch

from lotnet.cli.arguments import Parser
from lotnet.cli.options import OUT, open_model, output_file, say
from lotnet.data import to_unit
from lotnet.errors import InputError
from lotnet.export import SUFFIX, export
from lotnet.load_model import MODEL, LoadedModel
from lotnet.prediction import find_files, read_pictures
from lotnet.terminal import Console

_TEST_IMAGES = 50


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet export",
        "Write one file for ONNX Runtime or plain PyTorch that needs no lotnet: images in, logits and a radius out.",
        (
            "lotnet export runs/digits",
            "lotnet export lipconvnet5-cifar10 --to torch --precision float64 --out model.pt2",
        ),
    )
    parser.add_argument("model", type=str, help=MODEL)
    parser.add_argument("--to", type=Literal["onnx", "torch"], default="onnx", help="Format: ONNX, or torch.export.")
    parser.add_argument("--out", type=str | None, default=None, metavar="FILE", help=f"The file; {OUT}")
    parser.add_argument(
        "--precision",
        type=Literal["float32", "float64"],
        default="float32",
        help="Arithmetic of the file. Only float64 carries a proof (claim A).",
    )
    parser.add_argument(
        "--images",
        type=str | None,
        nargs="+",
        default=None,
        metavar="IMAGE",
        help="Image files or folders to check the file on; by default 50 test images of the data set.",
    )
    parser.add_common("json")
    options = parser.read(arguments)
    console = Console(stderr=options.json)
    opened = open_model(options.model, console)
    name = "model" if options.precision == "float32" else "model-float64"
    path = output_file(options.out, opened.folder, f"{name}{SUFFIX[options.to]}")
    images = _test_images(opened) if options.images is None else _pictures(options.images, opened.model.input_shape)
    done = export(opened.model, path, options.to, options.precision, images)
    about = {
        "written": str(done.path),
        "to": options.to,
        "checked_images": done.checked,
        "labels_as_predict": done.predicted,
        "difference": done.difference,
        "metadata": done.metadata,
    }
    if options.json:
        print(json.dumps(about))
        return 0
    source = "random images only, because the data set is not here: --images names pictures"
    if images is not None:
        source = f"{done.predicted} of them real, where all labels are those of `lotnet predict`"
    for line in (
        f"Written to {done.path}: images in [0, 1] in, {' and '.join(json.loads(done.metadata['outputs']))} out.",
        f"Loaded again and run on {done.checked} images ({source}): at most {done.difference:.1e} from PyTorch.",
        f"Claim {done.metadata['claim']}.",
    ):
        say(console, line)
    return 0


def _pictures(names: list[str], input_shape: tuple[int, ...]) -> torch.Tensor:
    pictures = read_pictures(find_files(names), input_shape)
    return to_unit(torch.stack([picture.pixels for picture in pictures]), torch.float64)


def _test_images(opened: LoadedModel) -> torch.Tensor | None:
    """Test images to check the exported file. None if they cannot be read; then only random images check it."""
    try:
        return to_unit(opened.split("test", _TEST_IMAGES).images, torch.float64)
    except InputError:
        return None
