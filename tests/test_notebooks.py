"""The notebooks run from the first cell to the last, each in a new kernel."""

from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install -e .[dev]")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install -e .[dev]")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install -e .[dev]")
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), f"{path.name} is kept without outputs: clear them"
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}, kernel_name="python3"
    ).execute()
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()) if "text" in output
    )
    assert "right and certified at 0.2" in printed and "No change of the pixels" in printed
