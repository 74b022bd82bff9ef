"""Hit rate against imbalance, as an SVG that needs nothing but a browser."""

from collections.abc import Iterator, Mapping
from typing import Final
from xml.sax.saxutils import escape

from bench.replay.outcome import Outcome

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 150, 40, 50
_INK: Final = ("#7f7f7f", "#9467bd", "#d62728", "#ff7f0e", "#2ca02c", "#1f77b4")
_GRID_STEPS: Final = 4


class Axes:
    """From figures to pixels. Imbalance to the right, from 1 on; hit rate upwards, from 0 on."""

    def __init__(self, outcomes: Mapping[str, Outcome], bound: float) -> None:
        self.most_x = max(1.1, *(outcome.imbalance for outcome in outcomes.values())) * 1.02
        self.most_y = bound * 1.1 or 1.0

    def x(self, imbalance: float) -> float:
        return _LEFT + (imbalance - 1) / (self.most_x - 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, hit_rate: float) -> float:
        return _HEIGHT - _BOTTOM - hit_rate / self.most_y * (_HEIGHT - _TOP - _BOTTOM)


def svg(title: str, outcomes: Mapping[str, Outcome], bound: float) -> str:
    """A dot for each policy; the dashed line is the infinite-cache bound. Best is the top left corner."""
    axes = Axes(outcomes, bound)
    parts = [*_frame(title, axes, bound), *_dots(outcomes, axes)]
    style = "font-family='sans-serif' font-size='12'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' {style}>"
    return "\n".join([head, f"<rect width='{_WIDTH}' height='{_HEIGHT}' fill='white'/>", *parts, "</svg>", ""])


def _frame(title: str, axes: Axes, bound: float) -> Iterator[str]:
    right, floor = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    yield _text(_LEFT, 16, title, "start", bold=True)
    for step in range(_GRID_STEPS + 1):
        rate = axes.most_y * step / _GRID_STEPS
        yield _line(_LEFT, axes.y(rate), right, axes.y(rate), "#dddddd")
        yield _text(_LEFT - 6, axes.y(rate) + 4, f"{rate:.2f}", "end")
        load = 1 + (axes.most_x - 1) * step / _GRID_STEPS
        yield _text(axes.x(load), floor + 18, f"{load:.2f}", "middle")
    yield _line(_LEFT, floor, right, floor, "#333333")
    yield _line(_LEFT, _TOP, _LEFT, floor, "#333333")
    yield _line(_LEFT, axes.y(bound), right, axes.y(bound), "#333333", dashed=True)
    yield _text((_LEFT + right) / 2, axes.y(bound) - 5, f"infinite cache {bound:.3f}", "middle")
    yield _text((_LEFT + right) / 2, _HEIGHT - 10, "imbalance: busiest worker's prefill work over the mean", "middle")
    yield _text(_LEFT - 6, _TOP - 12, "hit rate", "end")


def _dots(outcomes: Mapping[str, Outcome], axes: Axes) -> Iterator[str]:
    """Dots and a legend, because names beside dots would lie on each other."""
    for row, (name, outcome) in enumerate(outcomes.items()):
        ink = _INK[row % len(_INK)]
        yield f"<circle cx='{axes.x(outcome.imbalance):.1f}' cy='{axes.y(outcome.hit_rate):.1f}' r='5' fill='{ink}'/>"
        at = _TOP + 14 + 20 * row
        yield f"<circle cx='{_WIDTH - _RIGHT + 14}' cy='{at - 4}' r='5' fill='{ink}'/>"
        yield _text(_WIDTH - _RIGHT + 25, at, name, "start")


def _line(x1: float, y1: float, x2: float, y2: float, ink: str, *, dashed: bool = False) -> str:
    dash = " stroke-dasharray='5 4'" if dashed else ""
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' stroke='{ink}'{dash}/>"


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = " font-weight='bold'" if bold else ""
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'{weight}>{escape(text)}</text>"
