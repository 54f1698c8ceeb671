"""Does the fast path train as well as the paper's algorithm? One recipe and one seed, with each algorithm.

    python benchmarks/same_accuracy.py --epochs 10 --device cuda

`literal` iterates and differentiates as the paper prints it (full spectrum, ten coupled Newton steps, autograd);
evaluation is the same for both. The output is the clean accuracy and the accuracy by the standard certificate on the
test images, at the epoch that validation chose, and the largest singular value used in training, if the log has it.
"""

import argparse
from pathlib import Path

from torch import Tensor

from literal_lot import literal_transfers
from lotnet.config import RunConfig
from lotnet.operators import Operator, Spectrum
from lotnet.parametrizations import LOT, PARAMETRIZATIONS, Geometry, Parametrization
from lotnet.terminal import Console
from lotnet.training.run import RunFolder, start


class Literal(Parametrization):
    """The paper's iteration in training, LOT's own when frozen."""

    def operator(self, weight: Tensor, geometry: Geometry, frozen: bool = False) -> Operator:
        if frozen:
            return LOT().operator(weight, geometry, frozen)
        grid = geometry.grid
        transfers = literal_transfers(weight, grid.rows, grid.columns)[: grid.half]
        return Spectrum(transfers.flatten(0, 1), grid)


PARAMETRIZATIONS["literal"] = Literal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="cifar10/creg-hh")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("runs/same-accuracy"))
    options = parser.parse_args()
    for name in ("literal", "lot"):
        overrides = {"model.parametrization": name, "trainer.epochs": options.epochs}
        config = RunConfig.from_recipe(options.config, overrides)
        ready = start(config, RunFolder(options.out / name, overwrite=True), options.device)
        ready.train(Console(stderr=True))
        test = ready.test_accuracy()
        print(f"{name:8} clean {test.clean:.2%}", *(f"{r} {x:.2%}" for r, x in test.by_name().items()))
        values = [record.largest_singular_value for record in ready.run.metrics()]
        if known := [value for value in values if value is not None]:  # a GPU measures them after each epoch
            print(f"{'':8} largest singular value in training {max(known):.6f}")


if __name__ == "__main__":
    main()
