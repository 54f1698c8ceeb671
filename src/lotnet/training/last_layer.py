"""Fit the new last layer of a network that starts from another model, before its first step.

With a random last layer, the first steps would change the features that the network brings to suit that layer. Kumar
et al., "Fine-tuning can distort pretrained features and underperform out-of-distribution" (2022), fit it first, too.

Invariants:

* only the last layer changes;
* the result depends only on the network, the images and the loss. No random numbers are drawn.
"""

import torch
from torch import nn

from lotnet.certification.plain import pairwise_constants, pixel_lipschitz
from lotnet.data import Batches, Split
from lotnet.losses import Loss
from lotnet.runs.data import random_subset
from lotnet.training.precision import evaluating

_MOST_IMAGES = 2000
_BATCH = 100
_STEPS = 300
_LEARNING_RATE = 2e-3


def fit_last_layer(model: nn.Sequential, loss: Loss, images: Split, device: torch.device) -> None:
    """Train the last layer with this loss on the features of at most 2,000 of the images, without augmentation.

    The model is moved to the device, and is in training mode afterwards.
    """
    head, lipschitz = model.to(device)[-1], pixel_lipschitz(model)
    dtype = next(model.parameters()).dtype
    chosen = Batches(random_subset(images, _MOST_IMAGES), _BATCH, device=device, dtype=dtype)
    model.eval()
    with evaluating():
        parts = [(model[:-1](pixels), labels) for pixels, labels in chosen.epoch(0)]
    model.train()
    features, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    optimizer = torch.optim.Adam(head.parameters(), lr=_LEARNING_RATE)
    for step in range(_STEPS):
        logits = head(features)
        pairwise = pairwise_constants(head, logits.shape[1], logits)
        optimizer.zero_grad()
        loss(logits, labels, lipschitz, pairwise, step / _STEPS).backward()
        optimizer.step()
    optimizer.zero_grad()
