"""Trains a PPO agent that steers point masses to a goal around an obstacle, in a vectorised simulator."""

from dataclasses import dataclass
from typing import Optional

import torch
from torch import nn
from torch.distributions import Normal

torch.set_num_threads(1)

ENVS, HORIZON, ITERATIONS = 64, 64, 110
GAMMA, LAMBDA, CLIP = 0.98, 0.95, 0.2


class PointMassEnv:
    """All copies step together; an episode lasts at most eighty ticks."""

    obs_dim, act_dim = 12, 2

    def __init__(self, copies, seed):
        self.copies = copies
        self.gen = torch.Generator().manual_seed(seed)
        self.state = self._fresh(copies)
        self.age = torch.randint(0, 80, (copies,), generator=self.gen)

    def _fresh(self, count):
        spots = torch.rand(count, 6, generator=self.gen) * 4 - 2
        # position, velocity, goal, obstacle
        return torch.cat([spots[:, :2], torch.zeros(count, 2), spots[:, 2:]], dim=1)

    def observe(self):
        pos, vel, goal, rock = self.state.split(2, dim=1)
        return torch.cat([pos, vel, goal, goal - pos, rock, rock - pos], dim=1)

    def step(self, action):
        pos, vel, goal, rock = self.state.split(2, dim=1)
        before = (goal - pos).norm(dim=1)
        vel = 0.9 * vel + 0.1 * action.clamp(-1, 1)
        pos = pos + 0.5 * vel
        after = (goal - pos).norm(dim=1)
        near_rock = ((rock - pos).norm(dim=1) < 0.3).float()
        reached = after < 0.2
        reward = 4 * (before - after) - 0.5 * near_rock + 2 * reached.float()
        self.age = self.age + 1
        done = reached | (self.age >= 80)
        state = torch.cat([pos, vel, goal, rock], dim=1)
        self.state = torch.where(done[:, None], self._fresh(self.copies), state)
        self.age = torch.where(done, torch.zeros_like(self.age), self.age)
        return self.observe(), reward, done.float()


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, width=64):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(obs_dim, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, act_dim),
        )
        self.critic = nn.Sequential(
            nn.Linear(obs_dim, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 1),
        )
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def forward(self, obs):
        dist = Normal(self.actor(obs), self.log_std.exp(), validate_args=False)
        return dist, self.critic(obs).squeeze(-1)


@dataclass(eq=False, repr=False)
class Rollout:
    obs: torch.Tensor
    act: torch.Tensor
    logp: torch.Tensor
    value: torch.Tensor
    reward: torch.Tensor
    done: torch.Tensor
    advantage: torch.Tensor | None = None
    target: torch.Tensor | None = None
    prev: Optional["Rollout"] = None

    def finish(self, last_value):
        """Generalised advantage estimation; rewards are scaled by the spread of the targets before."""
        scale = 1.0 if self.prev is None else float(self.prev.target.std().clamp_min(0.5))
        reward = self.reward / max(1.0, scale)
        advantage = torch.zeros_like(reward)
        running = torch.zeros_like(last_value)
        for t in reversed(range(len(reward))):
            following = last_value if t == len(reward) - 1 else self.value[t + 1]
            alive = 1 - self.done[t]
            delta = reward[t] + GAMMA * following * alive - self.value[t]
            running = delta + GAMMA * LAMBDA * alive * running
            advantage[t] = running
        self.advantage, self.target = advantage, advantage + self.value


class Collector:
    def __init__(self, env, policy):
        self.env, self.policy = env, policy
        self.obs = env.observe()
        self.last = None

    @torch.no_grad()
    def collect(self):
        tape = {name: [] for name in ("obs", "act", "logp", "value", "reward", "done")}
        for _ in range(HORIZON):
            dist, value = self.policy(self.obs)
            act = dist.sample()
            following, reward, done = self.env.step(act)
            entry = (self.obs, act, dist.log_prob(act).sum(-1), value, reward, done)
            for name, item in zip(tape, entry):
                tape[name].append(item)
            self.obs = following
        columns = {name: torch.stack(items) for name, items in tape.items()}
        rollout = Rollout(**columns, prev=self.last)  # feeds
        rollout.finish(self.policy(self.obs)[1])
        self.last = rollout
        return rollout


def update(policy, optimizer, rollout, passes=3, parts=4):
    flat = {
        name: getattr(rollout, name).flatten(0, 1)
        for name in ("obs", "act", "logp", "advantage", "target")
    }
    size = len(flat["obs"])
    for _ in range(passes):
        for index in torch.randperm(size).chunk(parts):
            batch = {name: column[index] for name, column in flat.items()}
            adv = (batch["advantage"] - batch["advantage"].mean()) / (
                batch["advantage"].std() + 1e-6
            )
            dist, value = policy(batch["obs"])
            ratio = (dist.log_prob(batch["act"]).sum(-1) - batch["logp"]).exp()
            gain = torch.minimum(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            loss = (
                -gain
                + 0.5 * (value - batch["target"]).pow(2).mean()
                - 0.003 * dist.entropy().mean()
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
    return passes * parts


@torch.no_grad()
def validate(policy, seed):
    env, total = PointMassEnv(32, seed), 0.0
    obs = env.observe()
    for _ in range(60):
        obs, reward, _ = env.step(policy(obs)[0].mean)
        total += float(reward.mean())
    return total


def main():
    torch.manual_seed(0)
    env = PointMassEnv(ENVS, seed=1)
    policy = ActorCritic(env.obs_dim, env.act_dim)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    collector = Collector(env, policy)
    steps = 0
    for iteration in range(ITERATIONS):
        rollout = collector.collect()
        steps += update(policy, optimizer, rollout)
        if (iteration + 1) % 10 == 0:
            print(
                f"iteration {iteration + 1} reward {float(rollout.reward.mean()):.4f} "
                f"validation {validate(policy, 900):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
