"""Renders map tiles on demand and keeps each for ten minutes; clients pan over the map."""

import asyncio
import random
import zlib
from dataclasses import dataclass

import numpy as np

PER_SECOND, SECONDS, SIDE, HELD = 40, 12, 96, 64


@dataclass
class Tile:
    column: int
    row: int
    pixels: np.ndarray
    png: bytes


class Renderer:
    """Hills of which each tile shows a part."""

    def __init__(self, seed, waves=24):
        rng = np.random.default_rng(seed)
        self.waves = rng.standard_normal((waves, 2)) * 0.02
        self.phase, self.height = rng.random(waves) * 6.28, rng.random(waves)

    def render(self, column, row):
        x, y = np.meshgrid(np.arange(SIDE) + column * SIDE, np.arange(SIDE) + row * SIDE)
        at = np.tensordot(self.waves, np.stack([x, y]), 1) + self.phase[:, None, None]
        hills = (np.sin(at) * self.height[:, None, None]).sum(0)
        shade = np.clip(
            128 + 20 * np.stack([hills, np.gradient(hills, axis=0), -hills], -1), 0, 255
        )
        pixels = shade.astype(np.float32)
        return Tile(column, row, pixels, zlib.compress(pixels.astype(np.uint8).tobytes(), 1))


class TileStore:
    """The newest tiles; each expires by itself, as the map changes."""

    def __init__(self, loop, lifetime=600.0):
        self.loop, self.lifetime = loop, lifetime
        self.tiles = {}

    def put(self, tile):
        self.tiles[tile.column, tile.row] = tile
        self.loop.call_later(self.lifetime, self.expire, tile)
        while len(self.tiles) > HELD:
            del self.tiles[next(iter(self.tiles))]

    def get(self, column, row):
        return self.tiles.get((column, row))

    def expire(self, tile):
        if self.tiles.get((tile.column, tile.row)) is tile:
            del self.tiles[tile.column, tile.row]


class MapServer:
    def __init__(self, store, renderer):
        self.store, self.renderer = store, renderer
        self.sent = self.rendered = 0

    async def tile(self, column, row):
        tile = self.store.get(column, row)
        if tile is None:
            tile = self.renderer.render(column, row)
            self.store.put(tile)
            self.rendered += 1
        await asyncio.sleep(0.001)
        self.sent += len(tile.png)
        return tile.png


async def main():
    loop = asyncio.get_running_loop()
    server, dice = MapServer(TileStore(loop), Renderer(0)), random.Random(0)
    column, begun = 0, loop.time()
    for request in range(PER_SECOND * SECONDS):
        await asyncio.sleep(max(0.0, begun + request / PER_SECOND - loop.time()))
        column += request % 2
        # Every other request is for a tile that has been seen a moment ago.
        wanted = (column, 0) if request % 2 else (column - dice.randrange(4), 0)
        await server.tile(*wanted)
        if request % 80 == 79:
            print(
                f"{request + 1} asked, {server.rendered} rendered, {server.sent >> 10} KiB",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
