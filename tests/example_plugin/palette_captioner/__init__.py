"""Captions that name the colours of a frame, and the side on which it is bright."""

import numpy as np
from PIL import Image

from vid2context.kinds import ProviderDescriptor

NAMES = {
    "black": (0, 0, 0),
    "grey": (128, 128, 128),
    "white": (255, 255, 255),
    "red": (200, 30, 40),
    "orange": (240, 130, 20),
    "yellow": (250, 210, 40),
    "green": (40, 150, 70),
    "teal": (20, 140, 150),
    "blue": (40, 90, 200),
    "purple": (120, 60, 190),
    "pink": (240, 110, 170),
    "brown": (120, 75, 40),
}


class PaletteCaptioner:
    """Name the three colours that cover most of a picture."""

    name = "palette"
    requires_gpu = False
    descriptor = ProviderDescriptor(
        id="palette", version="1.0", preprocess="64x36", languages=("en",)
    )

    def caption(self, image: Image.Image, language: str = "en") -> str:
        """Describe one picture; the caption is English whatever is asked for."""
        small = image.convert("RGB").resize((64, 36), Image.Resampling.BOX)
        pixels = np.asarray(small, np.float64)
        colours = np.array(list(NAMES.values()), np.float64)
        nearest = np.argmin(((pixels[:, :, None] - colours) ** 2).sum(axis=3), axis=2)
        count = np.bincount(nearest.ravel(), minlength=len(colours))
        order = sorted(range(len(colours)), key=lambda i: (-count[i], i))
        shown = [list(NAMES)[i] for i in order[:3] if count[i] >= 0.05 * nearest.size]
        light = pixels.mean(axis=2)
        left, right = light[:, :32].mean(), light[:, 32:].mean()
        side = "evenly lit"
        if abs(left - right) > 16:
            side = f"brighter on the {'left' if left > right else 'right'}"
        return f"a palette of {', '.join(shown)}, {side}"
