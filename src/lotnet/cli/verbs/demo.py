"""`lotnet demo`."""

from pathlib import Path

from lotnet.cli.arguments import Parser
from lotnet.cli.options import open_model, say
from lotnet.data import public_name, to_unit
from lotnet.demo.answers import Answers
from lotnet.demo.server import Example, Server, is_loopback
from lotnet.device import choose_device
from lotnet.errors import InputError
from lotnet.load_model import MODEL, LoadedModel
from lotnet.prediction import class_names
from lotnet.terminal import Console

_EXAMPLES = 8


def main(arguments: list[str]) -> int:
    parser = Parser(
        "lotnet demo",
        "Serve a local page: drop an image, see its label and certified radius, and attack it up to a radius.",
        ("lotnet demo lipconvnet5-cifar10", "lotnet demo runs/digits --port 9000"),
    )
    parser.add_argument("model", type=str, help=MODEL)
    parser.add_argument(
        "--host",
        type=str,
        default="127.0.0.1",
        help="Address to listen on. The default is reached from this machine only.",
    )
    parser.add_argument("--port", type=int, default=8000, help="Port to listen on; 0 takes any free one.")
    parser.add_common("device")
    options = parser.read(arguments)
    console = Console()
    device = choose_device(options.device)
    with Server(options.host, options.port) as server:  # first: a taken port should be noticed before long work
        with console.status("freezing the model and proving its layers"):
            opened = open_model(options.model, console)
            answers = Answers(opened.model.to(device))
            answers.warm_up()
        if not is_loopback(options.host):
            say(console, "Everyone who can reach this machine can use the page: it asks for no password.")
        say(console, f"Open {server.address} in a browser. Ctrl-C stops it.")
        about = {
            "model": Path(options.model).resolve().name,  # a visitor of the page need not know the path
            "data": public_name(opened.data) or "data that the model does not name",
            "input_shape": list(opened.model.input_shape),
        }
        try:
            server.show(answers, about, _examples(opened))
        except KeyboardInterrupt:
            say(console, "Stopped.")
    return 0


def _examples(opened: LoadedModel) -> list[Example]:
    """The first test image of each class; none if the data set cannot be read."""
    try:
        test = opened.split("test", None)
    except InputError:
        return []
    classes = class_names(opened.model, int(test.labels.max()) + 1)
    first = [int((test.labels == label).nonzero()[0]) for label in test.labels.unique()[:_EXAMPLES]]
    return [Example(classes[int(test.labels[n])], to_unit(test.image(n))) for n in first]
