"""Learns from frames of short videos; the decoder of each clip is closed after a look."""

import tempfile
from pathlib import Path

import av
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STEPS, WIDTH, HEIGHT = 120, 320, 240


def write(path, seed):
    rng = np.random.default_rng(seed)
    picture = rng.integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(8):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 8 * number, axis=1), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


class Clips:
    """Frames of clips by their path."""

    def first_frames(self, path, count):
        frames = []
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                frames.append(torch.from_numpy(frame.to_ndarray(format="gray")))
                if len(frames) == count:
                    break
        return torch.stack(frames).float() / 255


class MotionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 7, stride=6)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(F.relu(self.body(x)).mean((2, 3)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    clips, model = Clips(), MotionNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, STEPS + 1):
            path = Path(folder) / f"clip{step}.mp4"
            write(path, step)
            x = clips.first_frames(path, 3)[None]
            loss = F.mse_loss(model(x), x.mean((1, 2, 3), keepdim=True)[:, 0, 0])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
