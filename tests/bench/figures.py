"""What a benchmark yields, and how it is printed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.table import Table

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: `value` against `target`, both ratios or both in `unit`; `detail` gives what was measured."""

    name: str
    value: float
    target: float
    unit: str
    detail: str

    @property
    def reached(self) -> bool:
        """Whether the value is within the target."""
        return self.value <= self.target


def cpu_of(work: Callable[[], Result], *, collector: bool = True) -> tuple[float, Result]:
    """Run `work` once and return the CPU seconds of this process, with the garbage collector on or off."""
    gc.collect()
    if not collector:
        gc.disable()
    began = time.process_time()
    try:
        result = work()
        return time.process_time() - began, result
    finally:
        gc.enable()


def print_figures(figures: list[Figure]) -> None:
    """Print the table, as Markdown can take it."""
    table = Table("what", "measured", "target", "", "detail", title="fsxds benchmarks")
    for figure in figures:
        unit = f" {figure.unit}" if figure.unit else " x"
        table.add_row(
            figure.name,
            f"{figure.value:.3g}{unit}",
            f"≤ {figure.target:.3g}{unit}",
            "reached" if figure.reached else "MISSED",
            figure.detail,
        )
    Console(width=170).print(table)
