"""`@endpoint` and `@listing`: methods of both clients, declared once by the request that they send.

    class JobEndpoints:
        @endpoint
        def cancel_job(self, job_id: int) -> ApiRequest[CancelResponse]:
            return build_request("POST", CancelResponse, "jobs", job_id, "cancel")

`Client.cancel_job(job_id)` returns a CancelResponse, `AsyncClient.cancel_job(job_id)` an awaitable of one.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from aaiclick.api.field_types import Page
from aaiclick.client.requests import ApiRequest

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


class SyncCaller(ABC):
    """Performs endpoints and returns their results."""

    @abstractmethod
    def perform(self, declared: Endpoint[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @abstractmethod
    def iterate(self, declared: Listing[P, T], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        """Iterate over the items of all pages."""


class AsyncCaller(ABC):
    """Performs endpoints and returns awaitables of their results."""

    @abstractmethod
    async def perform(self, declared: Endpoint[P, T], *args: P.args, **kwargs: P.kwargs) -> T: ...

    @abstractmethod
    def iterate(self, declared: Listing[P, T], *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        """Iterate over the items of all pages."""


class DeclaredMethod(Generic[P, R]):
    """A method that is declared by the function that builds its request."""

    def __init__(self, function: Callable[Concatenate[Any, P], ApiRequest[R]]) -> None:
        self.function = function
        self.name: str = getattr(function, "__name__")  # noqa: B009  (a Callable has no __name__ in its type)
        self.resource = function.__module__.rpartition(".")[2]
        self.__doc__ = function.__doc__

    def build(self, *args: P.args, **kwargs: P.kwargs) -> ApiRequest[R]:
        """Build the request of a call."""
        return self.function(None, *args, **kwargs)

    def bind(self, method: Callable[..., Any]) -> Any:
        """Bind the method of a caller to this declaration."""
        bound = functools.partial(method, self)
        bound.__doc__ = self.__doc__
        return bound


class Endpoint(DeclaredMethod[P, T]):
    """A method with one result."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: SyncCaller, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, instance: AsyncCaller, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, instance: SyncCaller | AsyncCaller | None, owner: type) -> Any:
        return self if instance is None else self.bind(instance.perform)


class Listing(Generic[P, T], DeclaredMethod[P, Page[T]]):
    """A method that iterates over the items of all pages; `limit` is the size of a page, `cursor` where it begins."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: SyncCaller, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, instance: AsyncCaller, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, instance: SyncCaller | AsyncCaller | None, owner: type) -> Any:
        return self if instance is None else self.bind(instance.iterate)


def endpoint(function: Callable[Concatenate[Any, P], ApiRequest[T]]) -> Endpoint[P, T]:
    """Declare a method with one result."""
    return Endpoint(function)


def listing(function: Callable[Concatenate[Any, P], ApiRequest[Page[T]]]) -> Listing[P, T]:
    """Declare a method that iterates over pages; it has the keyword arguments `cursor` and `limit`."""
    return Listing(function)
