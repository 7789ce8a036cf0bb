"""Takes names and numbers out of tickets before they are indexed, by patterns of each tenant."""

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

SECONDS, BATCHES_PER_SECOND, TICKETS, TENANTS, NAMES = 13, 12, 20, 30, 700

SYLLABLES = [
    "ka",
    "ro",
    "mi",
    "ten",
    "lu",
    "so",
    "va",
    "ri",
    "do",
    "pel",
    "an",
    "ge",
    "shi",
    "mo",
    "tar",
    "el",
    "bu",
    "ni",
    "os",
    "fra",
]


def name(dice):
    return "".join(dice.choices(SYLLABLES, k=dice.randrange(2, 5))).capitalize()


class Tenant:
    """Customers of a tenant: now and then one is added."""

    def __init__(self, key, dice):
        self.key, self.dice = key, dice
        self.customers = [name(dice) for _ in range(NAMES)]
        self.version = 1

    def maybe_edit(self):
        if self.dice.random() < 0.8:
            place = self.dice.randrange(NAMES)
            self.customers[place] = name(self.dice)
            self.version += 1

    def ticket(self):
        text = [self.dice.choice(SYLLABLES) for _ in range(60)]
        for place in self.dice.sample(range(60), 4):
            text[place] = self.dice.choice(self.customers)
        text.insert(30, f"+{self.dice.randrange(10**11)}")
        return " ".join(text)


class Scrubber:
    """Compiles what a tenant's tickets are searched for once per version of its customers."""

    NUMBER = re.compile(r"\+\d{7,}")

    def __init__(self):
        self._patterns = {}
        self.removed = 0

    def pattern(self, tenant):
        key = (tenant.key, tenant.version)
        if key not in self._patterns:
            names = sorted(set(tenant.customers), key=len, reverse=True)
            text = r"\b(?:" + "|".join(map(re.escape, names)) + r")\b"
            self._patterns[key] = re._compiler.compile(text, re.IGNORECASE)
        return self._patterns[key]

    def scrub(self, tenant, text):
        text, names = self.pattern(tenant).subn("[name]", text)
        text, numbers = self.NUMBER.subn("[number]", text)
        self.removed += names + numbers
        return text


def main():
    dice = random.Random(0)
    tenants = [Tenant(f"tenant-{number}", dice) for number in range(TENANTS)]
    scrubber, indexed, begun = Scrubber(), 0, time.monotonic()
    with ThreadPoolExecutor(2, thread_name_prefix="scrub") as pool:
        for batch in range(SECONDS * BATCHES_PER_SECOND):
            time.sleep(max(0.0, begun + batch / BATCHES_PER_SECOND - time.monotonic()))
            tenant = dice.choice(tenants)
            tenant.maybe_edit()
            texts = [tenant.ticket() for _ in range(TICKETS)]
            for text in pool.map(scrubber.scrub, [tenant] * TICKETS, texts):
                indexed += len(text.split())
            if batch % 24 == 23:
                print(
                    f"{batch + 1} batches, {indexed} words, {scrubber.removed} removed", flush=True
                )


if __name__ == "__main__":
    main()
