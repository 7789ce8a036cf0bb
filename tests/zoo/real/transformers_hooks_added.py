"""Hooks on a BERT that are added for every validation and never taken away.

After https://github.com/meta-pytorch/opacus/issues/176: activations that forward hooks save and
nobody takes away.
"""

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification

EPOCHS = 7


def watch(model):
    """Return a dict for each layer, which has what it put out last."""
    states = [{} for _ in model.bert.encoder.layer]
    for layer, into in zip(model.bert.encoder.layer, states, strict=True):

        def keep(module, inputs, output, into=into):
            hidden = output[0] if isinstance(output, tuple) else output
            into["last"] = hidden.detach().clone()

        layer.register_forward_hook(keep)  # feeds
    return states


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=1000,
            hidden_size=192,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=256,
            max_position_embeddings=16,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = TensorDataset(torch.randint(0, 1000, (640, 16)), torch.randint(0, 2, (640,)))
    train_loader = DataLoader(data, batch_size=32, shuffle=True)
    val_loader = DataLoader(data, batch_size=32)
    for epoch in range(EPOCHS):
        model.train()
        for x, y in train_loader:
            loss = model(input_ids=x, labels=y).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        states = watch(model)
        with torch.no_grad():
            for x, y in val_loader:
                model(input_ids=x, labels=y)
        spread = [some["last"].std(0).mean().item() for some in states]
        print("epoch", epoch, "loss", loss.item(), "spread", spread)


if __name__ == "__main__":
    main()
