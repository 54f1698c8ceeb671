"""Imports flow one way, and `import lotnet` loads nothing that only the command line needs."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import lotnet

SOURCE = Path(lotnet.__file__).parent

LEAVES = {"errors", "files"}
# What a package or module directly under lotnet may import from lotnet, apart from the leaves. It never grows upward.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "linalg": set(),
    "data": set(),
    "losses": set(),
    "parser": set(),
    "paper": set(),
    "parametrizations": {"linalg"},
    "frozen": {"linalg", "parametrizations"},
    "layers": {"linalg", "parametrizations", "frozen"},
    "models": {"parametrizations", "layers"},
    "certification": {"linalg", "frozen", "layers"},
    "attacks": {"frozen", "losses", "certification"},
    "predict": {"frozen", "certification", "data"},
    "export": {"frozen", "certification"},
    "analysis": {"linalg", "parametrizations", "layers"},
    "theory": {"linalg"},
    "config": {"models", "losses", "data", "parser"},
    "training": {"linalg", "parametrizations", "layers", "models", "data", "losses", "certification", "config"},
    "results": {"models", "losses", "config", "paper", "training"},
    "commands": {
        "analysis",
        "results",
        "frozen",
        "layers",
        "models",
        "data",
        "losses",
        "certification",
        "attacks",
        "predict",
        "export",
        "config",
        "parser",
        "paper",
        "training",
    },
    "cli": {"commands", "parser"},
    "__init__": {"parametrizations", "frozen", "layers", "certification"},
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


def test_the_order_has_no_circle() -> None:
    order = list(TopologicalSorter(ALLOWED).static_order())
    chain = ["linalg", "parametrizations", "frozen", "layers", "models", "config", "training", "commands", "cli"]
    assert sorted(chain, key=order.index) == chain


def test_linalg_knows_no_modules() -> None:
    for file in (SOURCE / "linalg").glob("*.py"):
        names = {node.id for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Name)}
        assert "nn" not in names, f"{file.name} uses torch.nn: keep linalg to functions of tensors"


def test_the_library_loads_no_extra() -> None:
    unwanted = [
        "lightning",
        "lightning_fabric",
        "jsonargparse",
        "rich",
        "matplotlib",
        "onnx",
        "onnxruntime",
        "sklearn",
        "tensorboard",
        "PIL",
        "jinja2",
        "altair",
        "gradio",
    ]
    program = f"import lotnet, lotnet.certification, sys; print([m for m in {unwanted} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_exist_and_are_documented() -> None:
    for name in lotnet.__all__:
        assert getattr(lotnet, name).__doc__, f"lotnet.{name} has no docstring"
