"""Settings of a run: frozen dataclasses, and the recipes and files that fill them.

A setting is written once, as a field with its docstring. That is its default, its type, its place in a recipe and its
line in `--help`. `model` and `loss` come in kinds, the tables `MODELS` and `LOSSES`; the key `kind` chooses one.

    groups      the dataclasses of the groups `data`, `optimizer` and `trainer`
    reader      checks a value against the type of its setting
    formats     the format versions, and the table of renamed settings
    settings    settings by dotted name: those of a recipe, and overrides on top of them
    recipes     packaged recipes and YAML files
    run         `RunConfig`, which holds all settings of a run
"""

from lotnet.config.groups import DataConfig, OptimizerConfig, TrainerConfig
from lotnet.config.recipes import default_recipe, read_recipe, recipe_settings, recipes
from lotnet.config.run import RunConfig
from lotnet.config.settings import Settings

__all__ = [
    "DataConfig",
    "OptimizerConfig",
    "RunConfig",
    "Settings",
    "TrainerConfig",
    "default_recipe",
    "read_recipe",
    "recipe_settings",
    "recipes",
]
