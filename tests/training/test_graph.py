"""A step recorded as a CUDA graph gives the same gradients as an eager step, for every loss."""

import pytest
import torch
from torch import Tensor

from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.losses import LOSSES
from lotnet.models import ImageSpec, LipConvnet
from lotnet.orthogonalize.grouping import GroupedOrthogonalization
from lotnet.training.graph import RecordedGradients

IMAGES = ImageSpec(3, 8, 8, 10, (0.5, 0.5, 0.5), 0.25)


@pytest.mark.gpu
@pytest.mark.parametrize("head", ["orthogonal", "lln"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_can_be_recorded(name: str, head: str) -> None:
    torch.manual_seed(0)
    model = LipConvnet(channels=4, activation="hh1", head=head).build(IMAGES).cuda().train()
    images, labels = torch.rand(16, 3, 8, 8, device="cuda"), torch.randint(0, 10, (16,), device="cuda")
    grouped, loss_of = GroupedOrthogonalization(model, images[:1]), LOSSES[name]()
    grouped.refresh()
    lipschitz = pixel_lipschitz(model)  # a Python number: a graph cannot wait for one from the GPU

    def gradients(images: Tensor, labels: Tensor, progress: float | Tensor) -> Tensor:
        grouped.prepare()
        logits = model(images)
        pairwise = pairwise_constants(model[-1], logits.shape[1], logits)
        loss = loss_of(logits, labels, lipschitz, pairwise, progress)
        loss.backward()
        grouped.release()
        return loss.detach()

    recorded, parameters = RecordedGradients(gradients, model), list(model.parameters())
    for progress in (0.1, 0.9):  # one graph: it must not hold values that change between steps
        loss = recorded(images, labels, progress)
        written = [p.grad for p in parameters]
        model.zero_grad(set_to_none=True)
        torch.testing.assert_close(loss, gradients(images, labels, torch.tensor(progress, device="cuda")))
        for parameter, gradient in zip(parameters, written, strict=True):
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-6)
            parameter.grad = gradient
