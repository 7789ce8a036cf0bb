"""Serves a small GPT-2 whose keys and values of prefixes are shared in a tree of blocks."""

import random
import time

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

REQUESTS, PER_SECOND, BLOCK, BUDGET, VOCABULARY = 190, 12, 16, 60, 512


class Block:
    """Keys and values of some tokens, below those of the tokens before."""

    def __init__(self, parent, tokens, layers):
        self.parent, self.tokens, self.layers = parent, tokens, layers
        self.children = {}
        self.users = 0
        self.used_at = 0


class RadixCache:
    """Blocks by their tokens; leaves without users go, the least recently used first."""

    def __init__(self, budget):
        self.root = Block(None, (), None)
        self.budget, self.count, self.clock = budget, 0, 0

    def match(self, tokens):
        self.clock += 1
        node, path = self.root, []
        for start in range(0, len(tokens) - BLOCK, BLOCK):
            child = node.children.get(tuple(tokens[start : start + BLOCK]))
            if child is None:
                break
            node = child
            node.used_at = self.clock
            path.append(node)
        return path

    def acquire(self, path):
        for block in path:
            block.users += 1

    def release(self, path):
        for block in path:
            block.users -= 1

    def insert(self, path, tokens, past):
        """Put the blocks after a path into the tree, and return the longer path."""
        path = list(path)
        node = path[-1] if path else self.root
        for start in range(len(path) * BLOCK, len(tokens) - BLOCK, BLOCK):
            part = slice(start, start + BLOCK)
            layers = [(k[:, :, part].clone(), v[:, :, part].clone()) for k, v in past]
            child = Block(node, tuple(tokens[part]), layers)
            child.used_at, child.users = self.clock, 1
            node.children[child.tokens] = child
            node, self.count = child, self.count + 1
            path.append(child)
        return path

    def evict(self):
        if self.count <= self.budget:
            return
        leaves, stack = [], [self.root]
        while stack:
            node = stack.pop()
            stack.extend(node.children.values())
            if not node.children and node.users == 0 and node.parent is not None:
                leaves.append(node)
        for leaf in sorted(leaves, key=lambda one: one.used_at)[: self.count - self.budget]:
            del leaf.parent.children[leaf.tokens]
            self.count -= 1


def collated(path, model):
    cache = DynamicCache(config=model.config)
    for layer in range(model.config.n_layer):
        if path:
            keys = torch.cat([block.layers[layer][0] for block in path], dim=2)
            values = torch.cat([block.layers[layer][1] for block in path], dim=2)
            cache.update(keys, values, layer)
    return cache


def tensors(cache):
    return [(layer.keys, layer.values) for layer in cache.layers]


@torch.no_grad()
def answer(model, cache, prompt, dice, length=6):
    path = cache.match(prompt)
    cache.acquire(path)
    past = collated(path, model)
    given = torch.tensor([prompt[len(path) * BLOCK :]])
    out = model(given, past_key_values=past, use_cache=True)
    path = cache.insert(path, prompt, tensors(past))
    written = []
    for _ in range(length):
        if dice.random() < 0.03:
            return None  # the client is gone
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        written.append(int(token))
        out = model(token, past_key_values=past, use_cache=True)
    cache.release(path)
    cache.evict()
    return written


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=256, n_embd=192, n_layer=4, n_head=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    cache, dice = RadixCache(BUDGET), random.Random(0)
    systems = [[dice.randrange(VOCABULARY) for _ in range(64)] for _ in range(4)]
    gone = shared = 0
    begun = time.monotonic()
    for request in range(REQUESTS):
        time.sleep(max(0.0, begun + request / PER_SECOND - time.monotonic()))
        prompt = dice.choice(systems) + [dice.randrange(VOCABULARY) for _ in range(96)]
        shared += len(cache.match(prompt))
        gone += answer(model, cache, prompt, dice) is None
        if request % 40 == 39:
            print(f"{request + 1} requests, {gone} gone, {shared} blocks shared", flush=True)


if __name__ == "__main__":
    main()
