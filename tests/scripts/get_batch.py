"""A language model whose batches come from a function, as in nanoGPT: there is no loader."""

import argparse
import time

import torch


class Model(torch.nn.Module):
    def __init__(self, words=65, width=32, length=64):
        super().__init__()
        self.word, self.place = torch.nn.Embedding(words, width), torch.nn.Embedding(length, width)
        self.head = torch.nn.Linear(width, words)

    def forward(self, x, y):
        logits = self.head(self.word(x) + self.place(torch.arange(x.shape[1])))
        return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))


def get_batch(text, batch_size=12, length=64):
    starts = torch.randint(len(text) - length, (batch_size,))
    x = torch.stack([text[start : start + length] for start in starts])
    y = torch.stack([text[start + 1 : start + 1 + length] for start in starts])
    return x, y


@torch.no_grad()
def estimate_loss(model, text):
    model.eval()
    loss = torch.stack([model(*get_batch(text)) for _ in range(5)]).mean()
    model.train()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--seen")
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = torch.randint(0, 65, (100_000,))
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x, y = get_batch(text)
    for step in range(args.epochs * 1000):
        if step % 10 == 0:
            print(f"step {step}: {estimate_loss(model, text):.3f}", flush=True)
        loss = model(x, y)
        x, y = get_batch(text)  # while the accelerator works
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        time.sleep(args.step_ms / 1000)
    torch.save(model.state_dict(), "checkpoint.pth")


if __name__ == "__main__":
    main()
