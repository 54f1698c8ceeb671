"""The page of the small model, served from a thread on a free port."""

import threading
from collections.abc import Iterator

import pytest

from lotnet import FrozenModel
from lotnet.data import load, to_unit
from lotnet.demo.answers import Answers
from lotnet.demo.server import Example, Server


@pytest.fixture(scope="session")
def page(model: FrozenModel) -> Iterator[Server]:
    test = load("digits").test
    examples = [Example(str(int(test.labels[n])), to_unit(test.images[n])) for n in range(3)]
    about = {"model": "small", "data": "digits", "input_shape": list(model.input_shape)}
    with Server("127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.show, args=(Answers(model), about, examples), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
