"""Learns values from logs of battles: poke-env 0.8.1 keeps each battle that it rewarded.

The environment remembers the last value of each battle by the battle itself. Repaired in 0.8.3,
which does so by weak keys (https://github.com/hsahovic/poke-env/pull/591).
"""

import logging
import random

import numpy as np
import torch
from gymnasium.spaces import Box
from poke_env.environment import Battle
from poke_env.player import Gen8EnvSinglePlayer
from torch import nn

BATTLES, TURNS, FEATURES = 700, 20, 16
TEAM = ("Pikachu", "Eevee", "Snorlax", "Gengar", "Machamp", "Lapras")


class Replays(Gen8EnvSinglePlayer):
    """Rewards turns of battles that were played elsewhere."""

    def calc_reward(self, last_battle, current_battle):
        return self.reward_computing_helper(  # feeds
            current_battle, fainted_value=2.0, hp_value=1.0, victory_value=30.0
        )

    def embed_battle(self, battle):
        features = np.zeros(FEATURES, dtype=np.float32)
        for start, team in ((0, battle.team), (8, battle.opponent_team)):
            for index, pokemon in enumerate(team.values()):
                features[start + index] = pokemon.current_hp_fraction
        features[7] = battle.turn / TURNS
        return features

    def describe_embedding(self):
        return Box(0.0, 1.0, (FEATURES,), np.float32)

    def action_to_move(self, action, battle):
        raise NotImplementedError


def log(rng):
    """Yield the messages of a battle, turn by turn."""
    yield [
        "|player|p1|trainer|1|", "|player|p2|rival|2|", "|teamsize|p1|6", "|teamsize|p2|6",
        "|gen|8", "|start", f"|switch|p1a: {TEAM[0]}|{TEAM[0]}, L50|100/100",
        f"|switch|p2a: {TEAM[1]}|{TEAM[1]}, L50|100/100", "|turn|1",
    ]  # fmt: skip
    for turn in range(2, TURNS + 2):
        own, other = rng.choice(TEAM), rng.choice(TEAM)
        yield [
            f"|switch|p1a: {own}|{own}, L50|{rng.randint(1, 100)}/100",
            f"|switch|p2a: {other}|{other}, L50|{rng.randint(1, 100)}/100",
            f"|-damage|p2a: {other}|{rng.randint(1, 100)}/100",
            f"|-damage|p1a: {own}|{rng.randint(1, 100)}/100",
            f"|turn|{turn}",
        ]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    logger = logging.getLogger("replays")
    env = Replays(opponent=None, start_listening=False, start_challenging=False)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in range(1, BATTLES + 1):
        battle = Battle(f"battle-gen8-{number}", "trainer", logger, gen=8)  # feeds
        states, rewards = [], []
        for messages in log(rng):
            for message in messages:
                battle.parse_message(message.split("|"))  # feeds
            states.append(env.embed_battle(battle))
            rewards.append(env.calc_reward(battle, battle))
        returns = np.cumsum(rewards[::-1])[::-1].astype(np.float32).copy()
        for _ in range(6):
            value = model(torch.from_numpy(np.stack(states))).squeeze(1)
            loss = nn.functional.smooth_l1_loss(value, torch.from_numpy(returns))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if number % 25 == 0:
            print(f"battle {number}/{BATTLES}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
