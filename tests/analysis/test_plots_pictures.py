"""The shapes of each plot look as they did, on light and on dark ground.

Fonts and their rendering differ between machines and versions of matplotlib: the pictures have no text, and the axes
stand in a fixed place. What is written, and that it fits, is tested in the other modules. After a wanted change draw
the pictures again: `python -m tests.analysis.test_plots_pictures`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.testing.compare import compare_images
from matplotlib.text import Text

from nbagents import set_price
from nbagents.analysis import plot_cost, plot_latency, plot_timeline, plot_tools, plot_usage
from nbagents.core.runlog import RunLog
from tests.analysis.drawn import busy_runs, sub_agents

PICTURES = Path(__file__).parent / "pictures"
TOLERANCE = 3.0
"""Root mean square of the differences, of 255: edges may be smoothed otherwise, a missing bar is more."""

STYLES = {"light": "default", "dark": "dark_background"}
SCENES = {
    "timeline-of-one": (sub_agents, plot_timeline),
    "timeline-of-many": (lambda: busy_runs(60), plot_timeline),
    "usage": (lambda: busy_runs(12), plot_usage),
    "latency": (lambda: busy_runs(60), plot_latency),
    "tools": (lambda: busy_runs(60), plot_tools),
    "cost": (lambda: busy_runs(12), plot_cost),
}


def draw(scene: str, style: str, path: Path) -> None:
    """Draw the shapes of a plot, without any text, 240 by 140 pixels large."""
    runs, plot = SCENES[scene]
    with pytest.MonkeyPatch.context() as patch, plt.style.context(["default", STYLES[style]]):
        patch.setattr("nbagents.core.runlog._log", RunLog())
        patch.setattr("nbagents.core.prices._own", {})
        set_price("model-a", input=10, output=20)
        runs()
        figure = plt.figure(figsize=(3, 1.75), dpi=80)
        ax = plot(ax=figure.add_axes((0.05, 0.1, 0.9, 0.85)))
        if legend := ax.get_legend():
            legend.remove()
        for text in figure.findobj(Text):
            text.set_visible(False)
        figure.savefig(path, dpi=80, metadata={"Software": None})


@pytest.mark.usefixtures("drawing")
@pytest.mark.filterwarnings("ignore:The price of the model")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("scene", SCENES)
def test_the_shapes_look_as_they_did(scene, style, tmp_path) -> None:
    draw(scene, style, tmp_path / "drawn.png")
    (tmp_path / "expected.png").write_bytes((PICTURES / f"{scene}-{style}.png").read_bytes())
    difference = compare_images(str(tmp_path / "expected.png"), str(tmp_path / "drawn.png"), TOLERANCE)
    assert difference is None, difference


if __name__ == "__main__":
    for scene in SCENES:
        for style in STYLES:
            draw(scene, style, PICTURES / f"{scene}-{style}.png")
