"""Images for which a training step surely needs more memory than there is are refused."""

import pytest
import torch
from torch import nn

from lotnet.config import RunConfig
from lotnet.errors import InputError
from lotnet.models import ImageSpec, LipConvnet, least_training_bytes
from lotnet.training import memory
from lotnet.training.launch import make_fabric

CONFIG = RunConfig.from_recipe("folder/default", {"model.channels": 4, "trainer.batch_size": 4})


def test_the_bound_grows_with_the_image_the_batch_and_the_channels() -> None:
    def bound(side: int, batch: int, channels: int, kind: str = "lot") -> int:
        model = CONFIG.override({"model.channels": channels, "model.parametrization": kind}).model
        return least_training_bytes(model, ImageSpec(3, side, side, classes=2), batch)

    assert bound(4096, 4, 4) > 30 * 2**30, "nothing of this size is made"
    assert 3.5 < bound(512, 4, 4) / bound(256, 4, 4) < 4.5
    assert 3 < bound(64, 4, 16) / bound(64, 4, 8) < 4
    outputs = (bound(64, 5, 4, "soc") - bound(64, 4, 4, "soc")) / 4
    assert outputs == 3 * 64**2 + sum((4 << n) * (64 >> n) ** 2 for n in range(1, 6)) + 128 * 4  # flattened last
    assert bound(64, 4, 4, "soc") == 4 * 4 * outputs, "without a matrix for each frequency"


@pytest.mark.parametrize("kind", ["lot", "cayley", "soc"])
def test_the_bound_is_below_what_autograd_keeps(kind: str) -> None:
    """Tensors that a forward pass saves for the backward pass, each counted once, and the operators."""
    torch.manual_seed(0)
    images, model = ImageSpec(3, 32, 32, classes=2), LipConvnet(depth=5, channels=4, parametrization=kind)
    network = model.build(images).train()
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = nn.functional.cross_entropy(network(torch.rand(8, *images.shape)), torch.zeros(8, dtype=torch.long))
    assert loss.requires_grad
    assert least_training_bytes(model, images, 8) < sum(storage.nbytes() for storage in kept.values())


def test_a_step_that_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = make_fabric(CONFIG.trainer, "cpu")
    there = memory.memory_of(torch.device("cpu"))
    assert there is not None and there > 2**28
    memory.check_memory(CONFIG, (3, 32, 32), fabric)
    monkeypatch.setattr(memory, "memory_of", lambda device: 2 * 2**30)
    with pytest.raises(
        InputError, match=r"images of 4096 x 4096 pixels needs more than 3\d GiB .* is 2 GiB: lower data"
    ):
        memory.check_memory(CONFIG, (3, 4096, 4096), fabric)
    monkeypatch.setattr(memory, "memory_of", lambda device: None)
    memory.check_memory(CONFIG, (3, 4096, 4096), fabric)
