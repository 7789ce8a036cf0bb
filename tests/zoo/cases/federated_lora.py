"""Federated fine-tuning of a small causal LM with one LoRA adapter per client update.

Every round a few clients start from the shared adapter, take some local steps on
their own text and send the low-rank factors back; the server averages them.
"""

import random
from collections import Counter

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import GPT2Config, GPT2LMHeadModel

VOCAB = 320
SEQ_LEN = 32
NUM_CLIENTS = 24
CLIENTS_PER_ROUND = 4
LOCAL_STEPS = 5
ROUNDS = 34


class ClientCorpus:
    """Each client has its own token distribution (non-iid split)."""

    def __init__(self, client_id):
        self.client_id = client_id
        gen = torch.Generator().manual_seed(1000 + client_id)
        logits = torch.randn(VOCAB, generator=gen) * 1.5
        self.probs = torch.softmax(logits, dim=0)
        self.gen = gen
        self.num_samples = 40 + 7 * client_id

    def batch(self, size):
        flat = torch.multinomial(self.probs, size * SEQ_LEN, replacement=True, generator=self.gen)
        return flat.view(size, SEQ_LEN)


class FederatedServer:
    def __init__(self, model, lora_config, seed=7):
        self.model = model
        self.lora_config = lora_config
        self.rng = random.Random(seed)
        self.clients = [ClientCorpus(i) for i in range(NUM_CLIENTS)]
        self.participation = Counter()
        self.shared = {k: v.clone() for k, v in get_peft_model_state_dict(model).items()}

    def local_update(self, client, round_idx):
        adapter = f"r{round_idx}_c{client.client_id}"
        self.model.add_adapter(adapter, self.lora_config)
        set_peft_model_state_dict(self.model, self.shared, adapter_name=adapter)
        self.model.set_adapter(adapter)

        params = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(params, lr=3e-3)
        total = 0.0
        for _ in range(LOCAL_STEPS):
            ids = client.batch(8)
            out = self.model(input_ids=ids, labels=ids)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            total += out.loss.item()
        update = get_peft_model_state_dict(self.model, adapter_name=adapter)
        return {k: v.detach().clone() for k, v in update.items()}, total / LOCAL_STEPS

    def aggregate(self, updates, weights):
        norm = sum(weights)
        for key in self.shared:
            self.shared[key] = sum(u[key] * (w / norm) for u, w in zip(updates, weights))

    def run_round(self, round_idx):
        chosen = self.rng.sample(self.clients, CLIENTS_PER_ROUND)
        updates, weights, losses = [], [], []
        for client in chosen:
            update, loss = self.local_update(client, round_idx)
            updates.append(update)
            weights.append(client.num_samples)
            losses.append(loss)
            self.participation[client.client_id] += 1
        self.aggregate(updates, weights)
        set_peft_model_state_dict(self.model, self.shared, adapter_name="default")
        return sum(losses) / len(losses)


def build_model():
    config = GPT2Config(
        vocab_size=VOCAB,
        n_positions=64,
        n_embd=96,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    lora = LoraConfig(
        r=16,
        lora_alpha=32,
        target_modules=["c_attn", "c_fc"],
        fan_in_fan_out=True,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(GPT2LMHeadModel(config), lora), lora


def main():
    torch.manual_seed(0)
    model, lora = build_model()
    model.train()
    server = FederatedServer(model, lora)
    for r in range(ROUNDS):
        loss = server.run_round(r)
        if r % 5 == 0 or r == ROUNDS - 1:
            print(f"round {r:3d}  mean client loss {loss:.4f}", flush=True)
    print("clients seen:", len(server.participation))


if __name__ == "__main__":
    main()
