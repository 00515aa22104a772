"""Models by name. The host holds their bytes and runs them; the function holds handles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ._interface import Graph, Host, NnFailure, current
from .errors import Error, nn_error
from .tensor import Tensor


class Model:
    """A model that the function's deployment names. It is opened when it first runs, so that one can be made where a module
    is imported."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._graph: Graph | None = None
        self._host: Host | None = None

    def open(self) -> Model:
        """Opens it now. A name that the function may not use, or that its tenant does not have: 500 `model_unavailable`; the
        other errors are in the table of `errors.py`."""
        host = current()
        if self._graph is None or self._host is not host:
            try:
                self._graph, self._host = host.open(self.name), host
            except NnFailure as failure:
                raise nn_error(self.name, failure.code, failure.data) from None
        return self

    def run(self, inputs: Mapping[str, Any]) -> Outputs:
        """Runs the model once on inputs by their names, and waits for its outputs. An input is a `Tensor`, or what
        `Tensor(…)` takes.

        The host's copy of an input is given away, so that an output of one model becomes an input of the next without its
        data being read.

        An input that the model does not take, lacks, or takes in another shape or type: 400 `invalid_tensor`; the other
        errors are those of `open`.
        """
        graph = self.open()._graph
        assert graph is not None
        tensors = [(name, given if isinstance(given, Tensor) else Tensor(given)) for name, given in inputs.items()]
        try:
            outputs = graph.run([(name, tensor._give()) for name, tensor in tensors])
        except NnFailure as failure:
            raise nn_error(self.name, failure.code, failure.data) from None
        return Outputs(self.name, ((name, Tensor._of_host(data)) for name, data in outputs))

    def __repr__(self) -> str:
        return f"Model({self.name!r})"


class Outputs(Mapping[str, Tensor]):
    """The outputs of one run by their names, in the model's order. Their data stays with the host until it is asked for."""

    def __init__(self, model: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
        self._model = model
        self._tensors = dict(tensors)

    def __getitem__(self, name: str) -> Tensor:
        """The output `name`, or 500 `no_such_output`."""
        tensor = self._tensors.get(name)
        if tensor is None:
            names = ", ".join(f"`{name}`" for name in self._tensors)
            raise Error(500, "no_such_output", f"model `{self._model}` gave no output `{name}`, only {names or 'none'}")
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def get(self, name: str, default: Any = None) -> Any:
        """The output `name`, or `default`."""
        return self._tensors.get(name, default)

    @property
    def first(self) -> Tensor:
        """The first output, or 500 `no_such_output`."""
        for tensor in self._tensors.values():
            return tensor
        raise Error(500, "no_such_output", f"model `{self._model}` gave no output")

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"Outputs({self._tensors!r})"
