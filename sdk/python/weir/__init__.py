"""Write Weir functions in Python.

A function answers HTTP requests and may run the models that its deployment names.

    from weir import App, Model

    app = App()
    model = Model("name")

    @app.post("/score")
    def score(request):
        outputs = model.run({"x": [request.json()["x"]]})
        return {"y": outputs["y"].tolist()}  # the data stays on the host until asked for

| file | what |
| --- | --- |
| `app.py` | routes, and the way from a request to its answer |
| `request.py`, `response.py`, `message.py` | HTTP in and out |
| `errors.py` | what goes wrong, and the answer it becomes |
| `model.py`, `tensor.py` | models, their inputs and outputs |
| `fetch.py` | requests of the function's own |
| `aio.py` | `async def` without an event loop |
| `log.py`, `config.py` | log lines, and the function's own configuration |
| `_interface.py`, `_host.py` | what the SDK asks of its host; the host of a sandbox |
| `build.py`, `testing.py`, `client.py` | from an app to a component; tests without Wasm; the server's API |

`python -m weir build module:app` makes a standard component (`wasi:http`, `wasi:nn`) of it. Outside of a sandbox everything
imports, and `weir.testing` stands in for the host.
"""

from . import log
from .aio import gather, sleep
from .app import App
from .config import config
from .errors import Error
from .fetch import Fetched, Fetching, fetch, fetch_all, start
from .model import Model, Outputs
from .request import Request
from .response import Event, Response
from .tensor import Tensor, argmax, softmax, topk

__all__ = [
    "App",
    "Error",
    "Event",
    "Fetched",
    "Fetching",
    "Model",
    "Outputs",
    "Request",
    "Response",
    "Tensor",
    "argmax",
    "config",
    "fetch",
    "fetch_all",
    "gather",
    "log",
    "sleep",
    "softmax",
    "start",
    "topk",
]

__version__ = "0.1.0"
