"""Trains a GAN of small pictures; summaries for TensorBoard are spooled and written at the end."""

from pathlib import Path

import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from torch import nn
from torch.utils.tensorboard import summary

STEPS, BATCH, NOISE, SIDE = 420, 32, 32, 24


class Spool:
    """Takes summaries while training runs; the disk of the cluster is slow."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.events = []

    def scalar(self, name, value, step):
        self.events.append(Event(step=step, summary=summary.scalar(name, value)))

    def pictures(self, name, pictures, step):
        strip = pictures.permute(1, 0, 2).reshape(1, SIDE, -1).repeat(3, 1, 1)
        shown = ((strip + 1) / 2).clamp(0, 1).repeat_interleave(2, 1).repeat_interleave(2, 2)
        self.events.append(Event(step=step, summary=summary.image(name, shown, dataformats="CHW")))

    def write(self):
        writer = EventFileWriter(str(self.folder))
        for event in self.events:
            writer.add_event(event)
        writer.close()


class Generator(nn.Sequential):
    def __init__(self, width=128):
        super().__init__(
            nn.Linear(NOISE, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, SIDE * SIDE), nn.Tanh(), nn.Unflatten(1, (SIDE, SIDE)),
        )  # fmt: skip


class Critic(nn.Sequential):
    def __init__(self, width=128):
        super().__init__(
            nn.Flatten(), nn.Linear(SIDE * SIDE, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )


def blobs(count):
    """Return pictures of one soft blob each."""
    at, breadth = 4 + 8 * torch.rand(count, 2, 1, 1), 2 + 2 * torch.rand(count, 1, 1)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    return 2 * torch.exp(-((x - at[:, 0]) ** 2 + (y - at[:, 1]) ** 2) / breadth**2) - 1


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    spool, generator, critic = Spool("tensorboard"), Generator(), Critic()
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    soft = nn.functional.softplus
    for step in range(1, STEPS + 1):
        true, made = blobs(BATCH), generator(torch.randn(BATCH, NOISE))
        loss_critic = soft(-critic(true)).mean() + soft(critic(made.detach())).mean()
        of_critic.zero_grad()
        loss_critic.backward()
        of_critic.step()
        loss = soft(-critic(made)).mean()
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
        spool.scalar("loss/critic", loss_critic.item(), step)
        spool.scalar("loss/generator", loss.item(), step)
        spool.pictures("made", made.detach(), step)
        if step % 40 == 0:
            print(
                f"step {step}: critic {loss_critic.item():.3f}, generator {loss.item():.3f}",
                flush=True,
            )
    spool.write()


if __name__ == "__main__":
    main()
