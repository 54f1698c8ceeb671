"""Imports flow one way."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import lotnet

SOURCE = Path(lotnet.__file__).parent

LEAVES = {"errors", "files", "spelling"}
# What a package or module directly under lotnet may import from lotnet, apart from the leaves. There are no cycles.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "spelling": set(),
    "kernels": set(),
    "linalg": {"kernels"},
    "operators": {"linalg"},
    "data": set(),
    "losses": set(),
    "parametrizations": {"linalg", "kernels", "operators"},
    "frozen": {"linalg", "kernels", "operators"},
    "layers": {"linalg", "kernels", "operators", "parametrizations", "frozen"},
    "models": {"parametrizations", "layers"},
    "orthogonalize": {"linalg", "operators", "parametrizations", "layers"},
    "certification": {"linalg", "frozen", "layers"},
    "attacks": {"frozen", "losses", "certification"},
    "prediction": {"frozen", "certification", "data"},
    "pretrained": {"frozen", "layers", "models", "certification"},
    "demo": {"frozen", "certification", "data", "attacks", "prediction"},
    "export": {"frozen", "certification"},
    "config": {"models", "losses"},
    "runs": {"config", "models", "data"},
    "load_model": {"data", "frozen", "layers", "pretrained", "runs"},
    "progress": set(),
    "training": {"certification", "config", "data", "layers", "losses", "models", "orthogonalize", "runs"},
    "certify_run": {"certification", "data", "frozen", "load_model", "pretrained", "progress", "training"},
    "pack_run": {"certification", "data", "frozen", "load_model", "pretrained", "progress", "runs", "training"},
    "paper": {"certification", "certify_run", "config", "linalg", "load_model", "losses", "models", "runs", "training"},
    "analysis": {
        "certification",
        "data",
        "frozen",
        "layers",
        "linalg",
        "losses",
        "models",
        "paper",
        "parametrizations",
        "progress",
        "runs",
        "training",
    },
    "selftraining": {
        "arguments",
        "certification",
        "certify_run",
        "config",
        "data",
        "frozen",
        "load_model",
        "paper",
        "progress",
        "runs",
        "training",
    },
    "report": {"data", "certification", "config", "paper", "runs"},
    "cli": {
        "analysis",
        "attacks",
        "certification",
        "certify_run",
        "config",
        "data",
        "demo",
        "export",
        "frozen",
        "layers",
        "load_model",
        "losses",
        "models",
        "pack_run",
        "paper",
        "prediction",
        "pretrained",
        "progress",
        "report",
        "runs",
        "selftraining",
        "training",
    },
    "__main__": {"cli"},
    "__init__": {"parametrizations", "frozen", "layers", "certification", "pretrained", "training"},
}


def imported(file: Path) -> set[str]:
    """First-level lotnet modules that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            names = [node.module or ""]
            if node.module == "lotnet":
                names = [f"lotnet.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("lotnet.")}
    return found


def part(file: Path) -> str:
    return file.relative_to(SOURCE).with_suffix("").parts[0]


def test_imports_flow_one_way() -> None:
    for file in sorted(SOURCE.rglob("*.py")):
        name = part(file)
        assert name in ALLOWED, f"{name} has no place in the order of imports yet: add it to ALLOWED"
        beyond = imported(file) - {name, "__version__"} - ALLOWED[name] - (LEAVES if name not in LEAVES else {"errors"})
        assert not beyond, f"{file.relative_to(SOURCE)} imports {', '.join(sorted(beyond))}, against the flow"


def test_the_import_order_has_no_cycle() -> None:
    order = list(TopologicalSorter(ALLOWED).static_order())
    chain = [
        "kernels",
        "linalg",
        "operators",
        "parametrizations",
        "frozen",
        "layers",
        "models",
        "config",
        "runs",
        "cli",
    ]
    assert sorted(chain, key=order.index) == chain


def test_linalg_does_not_use_torch_nn() -> None:
    for file in (SOURCE / "linalg").glob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)}
        assert "nn" not in names, f"{file.name} uses torch.nn: keep linalg to functions of tensors"
