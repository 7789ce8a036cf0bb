"""On-policy dialogue rollouts: a small policy LM talks to scripted users for a few
turns per conversation and is updated with REINFORCE on the replies it produced."""

import itertools
import uuid

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

VOCAB = 256
BOS, EOS = 1, 2
REPLY_TOKENS = 10
TURNS = 3
CONVERSATIONS = 216
CONCURRENT = 6


def build_policy():
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return LlamaForCausalLM(config)


class ChatEngine:
    """Keeps the attention cache of each conversation so that only the new turn is encoded."""

    def __init__(self, model):
        self.model = model
        self.sessions = {}

    def _cache_for(self, session_id):
        if session_id not in self.sessions:
            self.sessions[session_id] = DynamicCache()
        return self.sessions[session_id]

    @torch.no_grad()
    def reply(self, session_id, user_tokens, generator):
        cache = self._cache_for(session_id)
        ids = user_tokens
        produced = []
        for _ in range(REPLY_TOKENS):
            out = self.model(input_ids=ids, cache=cache, use_cache=True)
            probs = torch.softmax(out.logits[:, -1], dim=-1)
            ids = torch.multinomial(probs, 1, generator=generator)
            produced.append(ids)
        return torch.cat(produced, dim=1)


class ScriptedUser:
    def __init__(self, seed):
        self.session_id = uuid.UUID(int=seed * 7919 + 13).hex
        self.gen = torch.Generator().manual_seed(seed)
        self.topic = int(torch.randint(8, 40, (1,), generator=self.gen))

    def speak(self):
        length = int(torch.randint(4, 9, (1,), generator=self.gen))
        return torch.randint(self.topic, self.topic + 30, (1, length), generator=self.gen)

    def reward(self, reply):
        near = (reply >= self.topic) & (reply < self.topic + 30)
        return near.float().mean().item()


def play(engine, user, generator):
    transcript, mask, rewards = [], [], []
    for _ in range(TURNS):
        turn = user.speak()
        answer = engine.reply(user.session_id, turn, generator)
        transcript += [turn, answer]
        mask += [torch.zeros_like(turn), torch.ones_like(answer)]
        rewards.append(user.reward(answer))
    return torch.cat(transcript, 1)[0], torch.cat(mask, 1)[0], sum(rewards) / len(rewards)


def policy_gradient_step(model, optimizer, rollouts, baseline):
    longest = max(len(tokens) for tokens, _, _ in rollouts)
    ids = torch.full((len(rollouts), longest), EOS)
    mask = torch.zeros(len(rollouts), longest)
    for row, (tokens, m, _) in enumerate(rollouts):
        ids[row, : len(tokens)] = tokens
        mask[row, : len(m)] = m
    advantage = torch.tensor([r for _, _, r in rollouts]) - baseline
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    logp = torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)
    loss = -(advantage[:, None] * logp * mask[:, 1:]).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def main():
    torch.manual_seed(21)
    generator = torch.Generator().manual_seed(22)
    policy = build_policy()
    engine = ChatEngine(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    users = (ScriptedUser(seed) for seed in itertools.count(1))
    baseline = 0.0
    for batch in range(CONVERSATIONS // CONCURRENT):
        rollouts = [play(engine, next(users), generator) for _ in range(CONCURRENT)]
        mean_reward = sum(r for _, _, r in rollouts) / CONCURRENT
        policy_gradient_step(policy, optimizer, rollouts, baseline)
        baseline = 0.8 * baseline + 0.2 * mean_reward
        if batch % 4 == 0:
            print(f"update {batch:3d} reward {mean_reward:.3f} baseline {baseline:.3f}", flush=True)


if __name__ == "__main__":
    main()
