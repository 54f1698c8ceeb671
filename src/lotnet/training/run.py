"""Checks before a training run."""

from lotnet.config import RunConfig
from lotnet.data import Dataset, validation_split
from lotnet.errors import InputError
from lotnet.runs.data import image_spec


def check(config: RunConfig, dataset: Dataset) -> None:
    """Refuse settings that do not fit the data, before there is a run directory."""
    config.model.build(image_spec(dataset))
    training, _ = validation_split(dataset.train)
    if len(training) < config.trainer.batch_size:
        raise InputError(
            f"{len(training)} training images do not fill one batch of {config.trainer.batch_size}: lower "
            "trainer.batch_size or raise the limit"
        )
