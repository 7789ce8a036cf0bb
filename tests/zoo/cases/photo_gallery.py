"""Photo gallery backend: builds contact sheets of uploaded photos in scratch surfaces."""

import time
import weakref

import numpy as np
from PIL import Image, ImageFilter

UPLOADS = 420


def release_surface(surface):
    """Give the surface's pixels back when its owner is gone."""
    surface.fill(0)


class RenderDevice:
    """Long-lived drawing device shared by all requests."""

    def __init__(self, name):
        self.name = name
        self.blits = 0

    def surface(self, width, height):
        pixels = np.zeros((height, width, 3), dtype=np.uint8)
        weakref.finalize(self, release_surface, pixels).atexit = False
        return pixels

    def blit(self, surface, image, x, y):
        arr = np.asarray(image)
        h, w = arr.shape[:2]
        surface[y : y + h, x : x + w] = arr
        self.blits += 1


def fake_photo(rng):
    small = rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((640, 480), Image.BICUBIC)


def variants(photo):
    thumb = photo.resize((128, 96))
    yield thumb
    yield thumb.filter(ImageFilter.GaussianBlur(2))
    yield thumb.convert("L").convert("RGB")
    yield thumb.transpose(Image.FLIP_LEFT_RIGHT)


def contact_sheet(device, photo):
    sheet = device.surface(128 * 4 + 50, 96 + 20)
    sheet[:] = 240
    for i, image in enumerate(variants(photo)):
        device.blit(sheet, image, 10 + i * 138, 10)
    return sheet


def main():
    rng = np.random.default_rng(17)
    device = RenderDevice("sheet-renderer")
    brightness = 0.0
    start = time.time()
    for n in range(UPLOADS):
        photo = fake_photo(rng)
        sheet = contact_sheet(device, photo)
        brightness += float(sheet.mean())
        time.sleep(0.02)
        if n % 40 == 39:
            print(
                f"{n + 1} sheets, {device.blits} blits, brightness {brightness / (n + 1):.1f}",
                flush=True,
            )
    print(f"done in {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()
