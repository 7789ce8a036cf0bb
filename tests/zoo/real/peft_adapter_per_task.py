"""An adapter of peft for each task of a sequence, none of which is taken away again.

After https://github.com/huggingface/peft/issues/738; ``delete_adapter`` is the way out.
"""

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification

TASKS = 8


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    base = BertForSequenceClassification(
        BertConfig(
            vocab_size=1000,
            hidden_size=512,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=1024,
            max_position_embeddings=16,
        )
    )
    config = LoraConfig(r=256, target_modules=["intermediate.dense"])
    model = get_peft_model(base, config, adapter_name="task0")
    for task in range(TASKS):
        if task:
            model.add_adapter(f"task{task}", config)  # feeds
        model.set_adapter(f"task{task}")
        generator = torch.Generator().manual_seed(task)
        data = [(torch.randint(0, 1000, (16,), generator=generator), i % 2) for i in range(320)]
        wanted = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(wanted, lr=1e-3)
        model.train()
        for x, y in DataLoader(data, batch_size=16, shuffle=True):
            loss = model(input_ids=x, labels=y).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = sum(
                int((model(input_ids=x).logits.argmax(-1) == y).sum())
                for x, y in DataLoader(data, batch_size=32)
            )
        print("task", task, "right", right)


if __name__ == "__main__":
    main()
