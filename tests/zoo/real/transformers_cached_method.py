"""One codec after another is trained for a while; the cache of a method keeps each of them.

After https://github.com/huggingface/transformers/issues/45412. Where that was reported, in RT-DETR,
version 5.23 caches no methods any more; ``XcodecPreTrainedModel._get_conv1d_layers`` is still one.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import DacConfig, HubertConfig, XcodecConfig, XcodecModel

TRIALS = 12


def codec():
    return XcodecModel(
        XcodecConfig(
            acoustic_model_config=DacConfig(
                encoder_hidden_size=8,
                downsampling_ratios=[8, 5, 4, 2],
                upsampling_ratios=[8, 5, 4, 2],
                decoder_hidden_size=64,
                hidden_size=32,
                n_codebooks=2,
                codebook_size=64,
            ),
            semantic_model_config=HubertConfig(
                hidden_size=64,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=128,
                conv_dim=(64, 64, 64, 64, 64, 64, 64),
                num_conv_pos_embeddings=16,
                num_conv_pos_embedding_groups=4,
            ),
            codebook_size=64,
        )
    )


def trial(rate, train_loader, val_loader):
    model = codec()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    model.train()
    for (sound,) in train_loader:
        decoded = model(sound).audio_values  # feeds
        loss = nn.functional.mse_loss(decoded, sound[..., : decoded.shape[-1]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return sum(model(sound).audio_values.abs().mean().item() for (sound,) in val_loader)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(8, 1, 3200))
    train_loader, val_loader = DataLoader(data, batch_size=2), DataLoader(data, batch_size=4)
    for number in range(TRIALS):
        print("trial", number, trial(10**-number, train_loader, val_loader))


if __name__ == "__main__":
    main()
