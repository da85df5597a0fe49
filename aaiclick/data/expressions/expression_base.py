"""ExpressionBase: how functions are applied to expressions and to columns of Objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from aaiclick.data.expressions.nodes import ExpressionNode


class ExpressionBase(ABC):
    """Base of the method groups of expressions; subclasses implement how a function is applied."""

    @abstractmethod
    def _apply_function(self, function: str, *args: object, params: tuple[object, ...] = ()) -> Self:
        """Apply a registered function to this and the arguments."""

    @abstractmethod
    def _apply_window(
        self,
        function: str,
        *args: object,
        params: tuple[object, ...] = (),
        order: tuple[object, ...] = (),
        natural: bool = True,
        frame: tuple[str, str] | None = None,
        reverse: bool = False,
    ) -> Self:
        """Apply a function over a window in row order, or in reversed row order."""

    @abstractmethod
    def _lift_value(self, value: object) -> Self:
        """Convert a Python value to this class."""

    @abstractmethod
    def _apply_positional(self, function: str) -> Self:
        """Apply an aggregate that also takes the row's position."""

    @abstractmethod
    def _apply_lambda(self, function: str, body: ExpressionNode, label: str) -> Self:
        """Apply an expression over the element `label` to every element of an array."""

    @abstractmethod
    def _apply_range_window(self, function: str, by: object, width: int, params: tuple[object, ...]) -> Self:
        """Apply a function over the rows with a `by` that is at most `width` smaller."""
