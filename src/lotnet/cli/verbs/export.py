"""`lotnet export`."""

import json
from typing import Literal

import torch

from lotnet.cli.arguments import Parser
from lotnet.cli.options import OUT, open_model, output_file, say
from lotnet.errors import InputError
from lotnet.export import SUFFIX, export
from lotnet.load_model import MODEL, LoadedModel, tensors
from lotnet.terminal import Console

_TEST_IMAGES = 50


def main(arguments: list[str]) -> int:
    parser = Parser("lotnet export", "Write one file that needs no lotnet: images in, logits and a radius out.")
    parser.add_argument("model", type=str, help=MODEL)
    parser.add_argument("--to", type=Literal["onnx", "torch"], default="onnx", help="ONNX, or a torch.export archive.")
    parser.add_argument("--out", type=str | None, default=None, help=f"The file; {OUT}")
    parser.add_argument(
        "--precision", type=Literal["float32", "float64"], default="float32", help="float64 carries claim A."
    )
    parser.add_common("json")
    options = parser.read(arguments)
    console = Console(stderr=options.json)
    opened = open_model(options.model, console)
    name = "model" if options.precision == "float32" else "model-float64"
    path = output_file(options.out, opened.folder, f"{name}{SUFFIX[options.to]}")
    images = _test_images(opened)
    done = export(opened.model, path, options.to, options.precision, images)
    about = {
        "written": str(done.path),
        "to": options.to,
        "checked_images": done.checked,
        "test_images": 0 if images is None else len(images),
        "difference": done.difference,
        "metadata": done.metadata,
    }
    if options.json:
        print(json.dumps(about))
        return 0
    source = (
        "random images only, because the data set is not here" if images is None else f"{len(images)} of the test split"
    )
    for line in (
        f"Written to {done.path}: images in [0, 1] in, {' and '.join(json.loads(done.metadata['outputs']))} out.",
        f"Loaded again and run on {done.checked} images ({source}): at most {done.difference:.1e} from PyTorch.",
        f"Claim {done.metadata['claim']}.",
    ):
        say(console, line)
    return 0


def _test_images(opened: LoadedModel) -> torch.Tensor | None:
    """Test images to check the exported file. None if they cannot be read; then only random images check it."""
    try:
        return tensors(opened.split("test", _TEST_IMAGES))[0]
    except InputError:
        return None
