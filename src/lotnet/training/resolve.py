"""Settings of a new run that follow from its images, its device and the model that it starts from."""

from collections.abc import Collection

from lotnet.config import Settings
from lotnet.device import choose_device
from lotnet.runs.presets import with_preset
from lotnet.training.initial import with_initial


def resolved(settings: Settings, given: Collection[str], device: str, fixed: Collection[str] = ()) -> Settings:
    """Fill in what `--init` and `--preset` decide.

    `given` are the names that the user set. `fixed` are further ones that a preset does not replace.
    """
    if settings.values.get("init") is not None:
        settings = with_initial(settings, given)
        fixed = {*fixed, *(name for name in settings.values if name.startswith("model."))}
    if settings.values.get("preset") is None:
        return settings
    return with_preset(settings, {*given, *fixed}, choose_device(device).type)
