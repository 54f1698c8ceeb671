"""Settings of a run: frozen dataclasses, and the recipes and files that fill them.

Each setting is defined once, as a dataclass field with a docstring. The field gives its type, its default, its key in a
recipe and its line in `--help`. There are several kinds of `model` and `loss`, in the tables `MODELS` and `LOSSES`; the
key `kind` chooses one.

    groups        the dataclasses of the groups `data`, `optimizer` and `trainer`
    reader        checks a value against the type of its setting
    formats       the format versions, and the table of renamed settings
    settings      settings of a recipe by dotted name, and overrides on top of them
    recipes       packaged recipes and YAML files
    run           `RunConfig`, which holds all settings of a run
    selftraining  the settings that self-training adds
"""

from lotnet.config.groups import DataConfig, OptimizerConfig, TrainerConfig
from lotnet.config.recipes import default_recipe, read_recipe, recipe_settings, recipes
from lotnet.config.run import RunConfig
from lotnet.config.selftraining import SelfTrainingConfig
from lotnet.config.settings import Settings

__all__ = [
    "DataConfig",
    "OptimizerConfig",
    "RunConfig",
    "SelfTrainingConfig",
    "Settings",
    "TrainerConfig",
    "default_recipe",
    "read_recipe",
    "recipe_settings",
    "recipes",
]
