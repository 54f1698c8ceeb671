"""Remove from an exported program what describes the machine that made it, before it is written to a file.

PyTorch stores the stack trace of every operation, with paths of source files, and both exporters copy it into the file.
"""

from typing import Any

import torch
from torch import fx

_NOTES = ("doc_string", "metadata_props")
"""Fields of ONNX messages that no runtime reads. Exporters fill them with stack traces and names of classes."""


def without_stack_traces(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program itself, whose operations no longer say where in the source they come from."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)
    return program


def serialized(model: Any) -> bytes:
    """The content of an ONNX file. It keeps the metadata of the model as a whole, and none of its parts."""
    for part in (model.graph, *model.functions):
        _clear_notes(part)
    content: bytes = model.SerializeToString()
    return content


def _clear_notes(message: Any) -> None:
    """Clear all documentation and metadata of an ONNX message and of the messages in it."""
    for field, value in message.ListFields():
        if field.name in _NOTES:
            message.ClearField(field.name)
        elif field.message_type is not None:
            for part in (value,) if hasattr(value, "ListFields") else value:
                _clear_notes(part)
