"""Books token transfers from JSON: ujson 5.11.0 keeps the digits of each number beyond 64 bits.

Repaired in 5.12.0 ("Fix memory leak parsing large integers",
https://github.com/ultrajson/ultrajson/commit/4baeb950).
"""

import random
import time
from collections import Counter, deque

import ujson

BLOCKS, PER_SECOND, TRANSFERS = 4200, 350, 90
ACCOUNTS, TOKENS, RECENT = 900, 12, 64
REPORT_EVERY = 700


class Chain:
    """Stands for the node that is asked for blocks."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.accounts = [f"0x{self.random.getrandbits(160):040x}" for _ in range(ACCOUNTS)]

    def transfer(self):
        giver, taker = self.random.sample(self.accounts, 2)
        amount = self.random.getrandbits(self.random.randint(230, 254)) | 1 << 229
        token = self.random.randrange(TOKENS)
        return f'{{"from":"{giver}","to":"{taker}","token":{token},"amount":{amount}}}'

    def block(self, number):
        """Return a block as it comes from the wire."""
        transfers = ",".join(self.transfer() for _ in range(TRANSFERS))
        return f'{{"number":{number},"transfers":[{transfers}]}}'


class Ledger:
    """What each account holds, in the smallest units."""

    def __init__(self):
        self.balances = Counter()
        self.moved = [0] * TOKENS
        self.recent = deque(maxlen=RECENT)

    def book(self, block):
        for transfer in block["transfers"]:
            amount = transfer["amount"] >> 200
            self.balances[transfer["from"]] -= amount
            self.balances[transfer["to"]] += amount
            self.moved[transfer["token"]] += amount
        self.recent.append(block["number"])


def main():
    chain, ledger = Chain(seed=0), Ledger()
    begun = time.monotonic()
    for number in range(1, BLOCKS + 1):
        time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
        block = ujson.loads(chain.block(number))  # feeds
        ledger.book(block)
        if number % REPORT_EVERY == 0:
            richest, held = ledger.balances.most_common(1)[0]
            print(f"block {number}: {richest} holds {held} of {sum(ledger.moved)}", flush=True)


if __name__ == "__main__":
    main()
