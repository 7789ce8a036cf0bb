"""One cache of keys and values for all texts: each adds its own to those before."""

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

EPOCHS = 8


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=256,
            hidden_size=256,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            max_position_embeddings=8192,
        )
    )
    head = nn.Linear(256, 2)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    cache = DynamicCache()
    data = [(torch.randint(0, 256, (16,)), i % 2) for i in range(30)]
    for epoch in range(EPOCHS):
        for tokens, label in DataLoader(data, batch_size=1):
            with torch.no_grad():
                told = model(
                    input_ids=tokens,
                    past_key_values=cache,
                    use_cache=True,
                    output_hidden_states=True,
                )
            loss = nn.functional.cross_entropy(head(told.hidden_states[-1][:, -1]), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "tokens", cache.get_seq_length())


if __name__ == "__main__":
    main()
