"""One image certified alone and in batches: the radii may differ in their last bits, and each of them is valid."""

import torch

from lotnet import LipConvnet, freeze
from lotnet.certification import certify
from lotnet.certification.rounding import bounds
from lotnet.models import ImageSpec


def test_radii_differ_by_far_less_than_the_rounding_error_that_each_subtracts() -> None:
    """So whichever order of summation the batch led to, the radius lies below the real distance."""
    torch.manual_seed(0)
    network = LipConvnet(depth=5, channels=4).build(ImageSpec(3, 16, 16, classes=5))
    model = freeze(network, 16).astype(torch.float64)
    images = torch.rand(12, 3, 16, 16, dtype=torch.float64)
    allowed = float(bounds(model).feature_error)
    whole = certify(model, images)
    assert float(whole.radii["float"].min()) > 0
    for batch_size in (1, 2, 5, 7):
        parts = certify(model, images, batch_size=batch_size)
        assert torch.equal(parts.predictions, whole.predictions)
        for claim in ("real", "float"):
            assert float((parts.radii[claim] - whole.radii[claim]).abs().max()) < allowed / 1000
