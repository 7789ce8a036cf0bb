"""A plain loop over a small Whisper, whose batches are of different lengths."""

import torch
from torch.utils.data import DataLoader
from transformers import (
    WhisperConfig,
    WhisperForConditionalGeneration,
    get_linear_schedule_with_warmup,
)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=300,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        num_mel_bins=40,
        max_source_positions=100,
        max_target_positions=64,
        decoder_start_token_id=1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    lengths = torch.randint(8, 48, (240,)).tolist()
    spoken = [(torch.rand(40, 200), torch.randint(3, 300, (length,))) for length in lengths]

    def collate(batch):
        labels = torch.nn.utils.rnn.pad_sequence(
            [text for _, text in batch], batch_first=True, padding_value=-100
        )
        return torch.stack([sound for sound, _ in batch]), labels

    train_loader = DataLoader(spoken[:200], batch_size=8, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(spoken[200:], batch_size=8, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    epochs = 5
    schedule = get_linear_schedule_with_warmup(optimizer, 10, epochs * len(train_loader))
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for sounds, labels in train_loader:
            loss = model(input_features=sounds, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            texts = [
                model.generate(sounds, max_new_tokens=8, do_sample=False)
                for sounds, _ in val_loader
            ]
        print("epoch", epoch, "loss", total / len(train_loader), "texts", len(texts))


if __name__ == "__main__":
    main()
