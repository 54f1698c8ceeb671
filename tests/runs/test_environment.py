from importlib import metadata

import pytest

from lotnet.runs.environment import Session


def test_a_source_tree_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with PYTHONPATH=src, where no distribution is called lotnet: the run is described all the same."""
    versions = {"torch": metadata.version("torch"), "numpy": metadata.version("numpy")}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    described = Session.here("cpu", processes=1).versions
    assert described["torch"] == versions["torch"]
    assert described["lotnet"] is None and described["lightning-fabric"] is None
