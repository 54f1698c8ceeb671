"""Imports flow one way, hardware is asked for in few places, and everything stays small enough to be read."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import lotnet

SOURCE = Path(lotnet.__file__).parent

LEAVES = {"errors", "files", "palette", "records", "spelling"}
# What a package or module directly under lotnet may import from lotnet, apart from the leaves. There are no cycles.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "records": {"files"},
    "palette": set(),
    "spelling": set(),
    "kernels": set(),
    "linalg": {"kernels"},
    "operators": {"linalg"},
    "data": set(),
    "losses": set(),
    "device": set(),
    "parametrizations": {"linalg", "kernels", "operators"},
    "frozen": {"linalg", "kernels", "operators"},
    "layers": {"kernels", "operators", "parametrizations", "frozen"},
    "models": {"parametrizations", "layers"},
    "conversion": {"layers"},
    "orthogonalize": {"kernels", "linalg", "operators", "parametrizations", "layers"},
    "certification": {"linalg", "frozen", "layers"},
    "attacks": {"frozen", "losses", "certification"},
    "prediction": {"frozen", "certification", "data"},
    "pretrained": {"certification", "config", "data", "frozen", "layers", "models", "runs"},
    "demo": {"frozen", "certification", "data", "attacks", "prediction"},
    "export": {"certification", "data", "export_cleaning", "frozen", "prediction"},
    "export_cleaning": set(),
    "config": {"data", "models", "losses"},
    "runs": {"attacks", "certification", "config", "data", "frozen", "models"},
    "load_model": {"data", "frozen", "layers", "pretrained", "runs"},
    "progress": set(),
    "terminal": set(),
    "training": {
        "certification",
        "config",
        "data",
        "device",
        "layers",
        "losses",
        "models",
        "orthogonalize",
        "pretrained",
        "progress",
        "runs",
        "terminal",
    },
    "certify_run": {"certification", "data", "frozen", "load_model", "pretrained", "progress", "runs", "training"},
    "pack_run": {"certification", "data", "frozen", "pretrained", "progress", "runs"},
    "paper": {
        "attacks",
        "certification",
        "certify_run",
        "config",
        "data",
        "load_model",
        "losses",
        "models",
        "runs",
        "training",
    },
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
        "pretrained",
        "progress",
        "runs",
        "training",
    },
    "selftraining": {
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
    "report": {"attacks", "certification", "config", "data", "frozen", "paper", "progress", "runs"},
    "cli": {
        "analysis",
        "attacks",
        "certification",
        "certify_run",
        "config",
        "data",
        "demo",
        "device",
        "export",
        "frozen",
        "load_model",
        "models",
        "pack_run",
        "paper",
        "parametrizations",
        "prediction",
        "pretrained",
        "progress",
        "report",
        "runs",
        "selftraining",
        "terminal",
        "training",
    },
    "__main__": {"cli"},
    "__init__": {
        "certification",
        "conversion",
        "frozen",
        "layers",
        "load_model",
        "models",
        "orthogonalize",
        "parametrizations",
        "prediction",
        "pretrained",
        "training",
    },
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
        beyond = (
            imported(file)
            - {name, "__version__"}
            - ALLOWED[name]
            - (LEAVES if name not in LEAVES else {"errors", "files"})
        )
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


def test_no_edge_is_stale() -> None:
    used: dict[str, set[str]] = {name: set() for name in ALLOWED}
    for file in SOURCE.rglob("*.py"):
        used[part(file)] |= imported(file)
    stale = {name: ALLOWED[name] - used[name] for name in ALLOWED if ALLOWED[name] - used[name]}
    assert stale == {}, "nothing uses these edges any more: take them out of ALLOWED"


def test_the_command_line_is_nobodys_library() -> None:
    for file in SOURCE.rglob("*.py"):
        if part(file) not in ("cli", "__main__"):
            assert "cli" not in imported(file), f"{file.relative_to(SOURCE)} imports lotnet.cli"
    for file in (Path(__file__).parents[1] / "benchmarks").glob("*.py"):
        assert "cli" not in imported(file), f"benchmarks/{file.name} imports lotnet.cli"


def test_the_design_page_names_modules_that_exist() -> None:
    """`linalg` in the first column of its table, and names such as `linalg.polar` anywhere on the page."""
    page = (Path(__file__).parents[1] / "docs" / "design.md").read_text()
    cells = re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert len(named) > 20
    named |= {match for match in re.findall(r"`(?:lotnet\.)?(\w+\.\w+)`", page) if match.split(".")[0] in ALLOWED}
    named |= set(re.findall(r"`lotnet\.(\w+)`", page))
    places = {name: SOURCE / name.replace(".", "/") for name in named}
    assert [name for name, place in places.items() if not (place.is_dir() or place.with_suffix(".py").is_file())] == []


HARDWARE = re.compile(r"\b(?:is_cuda|cuda\.\w+|triton)\b|[\"']cuda[\"']|device\.type\s*[!=]=")
"""How code asks for a GPU: by `is_cuda`, `torch.cuda`, `torch.backends.cuda`, a device's name or type, or Triton."""

ASKS_FOR_HARDWARE = {
    "kernels": "what runs where",
    "device.py": "reads --device",
    "training/launch.py": "chooses the devices of a run",
    "training/precision.py": "sets and restores PyTorch's arithmetic",
    "training/memory.py": "compares the memory of a step with that of the device",
    "training/display.py": "says why the first steps on a GPU take long",
    "orthogonalize/captured.py": "records CUDA graphs",
    "training/poll.py": "reads the loss of a GPU less often",
    "training/rng.py": "saves the states of random number generators",
    "runs/environment.py": "records the hardware of a run",
    "runs/checkpoint.py": "copies through page-locked memory",
    "certification/certificate.py": "refuses to certify in rounded arithmetic",
    "certify_run.py": "times a pass over the images, and records the hardware",
}
"""The places outside which nothing asks for hardware."""


def test_hardware_is_asked_for_in_named_places() -> None:
    asking = set()
    for file in SOURCE.rglob("*.py"):
        code = ast.unparse(_without_docstrings(ast.parse(file.read_text())))
        if HARDWARE.search(code):
            name = str(file.relative_to(SOURCE))
            asking.add("kernels" if name.startswith("kernels/") else name)
    assert asking == set(ASKS_FOR_HARDWARE)


def _without_docstrings(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            texts = [item for item in body if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)]
            node.body = [item for item in body if item not in texts] or [ast.Pass()]
    return tree


MIRRORS_PYTORCH = {"OrthogonalConv1d.__init__", "OrthogonalConv2d.__init__", "OrthogonalConvTranspose2d.__init__"}
"""Constructors that take the arguments of their PyTorch counterparts."""


def test_modules_and_functions_are_short() -> None:
    """Triton kernels are left out: their arguments are pointers and sizes, and the compiler wants them in one piece."""
    long = []
    for file in SOURCE.rglob("*.py"):
        name, text = str(file.relative_to(SOURCE)), file.read_text()
        if text.count("\n") > 320:
            long.append(f"{name} has {text.count(chr(10))} lines")
        for scope, function in _functions(ast.parse(text)):
            lines = (function.end_lineno or 0) - function.lineno + 1
            arguments = function.args
            count = len(arguments.posonlyargs + arguments.args + arguments.kwonlyargs)
            count -= bool(arguments.args) and arguments.args[0].arg in ("self", "cls")
            if lines > (90 if (name, function.name) == ("training/loop.py", "_train") else 60):
                long.append(f"{name}: {scope}{function.name} has {lines} lines")
            if count > 8 and f"{scope}{function.name}" not in MIRRORS_PYTORCH:
                long.append(f"{name}: {scope}{function.name} has {count} parameters")
    assert long == []


def _functions(tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            if not any("jit" in ast.unparse(decorator) for decorator in node.decorator_list):
                yield scope, node
                yield from _functions(node, f"{scope}{node.name}.")
        else:
            yield from _functions(node, f"{scope}{node.name}." if isinstance(node, ast.ClassDef) else scope)


def test_tests_import_few_private_names() -> None:
    private = {
        f"{node.module}.{alias.name}"
        for file in Path(__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lotnet")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    }
    assert len(private) <= 5, f"make public, or test elsewhere: {', '.join(sorted(private))}"


def test_gpu_tests_need_no_package_that_a_gpu_machine_may_lack() -> None:
    tests = Path(__file__).parent
    modules = [file for file in tests.rglob("test_*.py") if "mark.gpu" in file.read_text() and file != Path(__file__)]
    assert len(modules) > 5
    missing = {"hypothesis", "flint", "playwright", "onnx", "onnxruntime", "matplotlib"}
    for file in modules:
        names: set[str | None] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module)
        found = ", ".join(str(name) for name in missing & names)
        assert not found, f"{file.relative_to(tests)} imports {found}: move its GPU tests to another module"
