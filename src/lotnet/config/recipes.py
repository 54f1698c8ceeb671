"""Packaged recipes, and recipes in YAML files."""

from importlib import resources
from pathlib import Path
from typing import Any

from lotnet.config.formats import check_format, current_names
from lotnet.config.settings import Settings
from lotnet.config.yaml_text import read_yaml
from lotnet.errors import InputError
from lotnet.spelling import nearest

SELF_TRAINING = "selftrain"
"""The recipes for `lotnet selftrain` are called DATASET/selftrain."""


def recipes() -> list[str]:
    """Names of the packaged recipes, DATASET/SETTING."""
    folder = resources.files("lotnet") / "recipes"
    return sorted(
        f"{group.name}/{file.name.removesuffix('.yaml')}"
        for group in folder.iterdir()
        if group.is_dir()
        for file in group.iterdir()
        if file.name.endswith(".yaml")
    )


def default_recipe(data: str, *settings: str) -> str:
    """The recipe for a data set when none is named: the first of `settings` that exists, else `default` or `plain`."""
    group = "folder" if data.startswith("folder:") else data
    wanted = (f"{group}/{setting}" for setting in (*settings, "default", "plain"))
    known = recipes()
    return next((name for name in wanted if name in known), "digits/default")


def read_recipe(name: str) -> dict[str, Any]:
    """Read the settings of a packaged recipe or of a YAML file, without checking them."""
    if name in recipes():
        return read_yaml((resources.files("lotnet") / "recipes" / f"{name}.yaml").read_text(), name)
    if not name.endswith((".yaml", ".yml")):
        raise InputError(f"there is no recipe {name}{nearest(name, recipes())}")
    try:
        return read_yaml(Path(name).read_text(), name)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"cannot read {name} ({reason}): give a YAML file or one of {', '.join(recipes())}") from None


def recipe_settings(name: str, extra: type | None = None) -> Settings:
    """Read and check the settings of a recipe, or of a run's own config.yaml.

    `extra` is a dataclass of additional settings at the top level, such as those of self-training.
    """
    if extra is None and name.endswith(f"/{SELF_TRAINING}"):
        raise InputError(f"{name} is a recipe of self-training: use `lotnet selftrain --config {name}`")
    content = read_recipe(name)
    stored = "format" in content
    if stored:
        check_format(content, name, "write the settings for this version, or leave the line out to try them")
    return Settings.read(current_names(content, name, warn=not stored), name, extra)
