"""Optimizers and learning rate schedules.

The learning rate depends only on the progress of the run, so checkpoints hold no state of the schedule.
"""

import math

import torch
from torch import nn

from lotnet.config import OptimizerConfig


def make_optimizer(config: OptimizerConfig, model: nn.Module) -> torch.optim.Optimizer:
    parameters = list(model.parameters())
    if config.name == "nadam":
        return torch.optim.NAdam(parameters, lr=config.lr, weight_decay=config.weight_decay)
    return torch.optim.SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


def learning_rate(config: OptimizerConfig, progress: float) -> float:
    """Return the learning rate at `progress` in [0, 1) of the run."""
    if config.schedule == "multistep":
        return config.lr * (1.0 if progress < 1 / 2 else 0.1 if progress < 3 / 4 else 0.01)
    if config.schedule == "onecycle":
        if progress < config.warmup:
            return config.lr * progress / config.warmup
        return config.lr * (1 + math.cos(math.pi * (progress - config.warmup) / (1 - config.warmup))) / 2
    return config.lr
