"""A loader whose iterator is made once, in its constructor, over an endless sampler; epochs are counted by length."""

import argparse
import time

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class RepeatSampler:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class EndlessLoader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", RepeatSampler(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

    def __del__(self):
        for worker in getattr(self.iterator, "_workers", ()):
            worker.terminate()


class Numbered(datasets.ImageFolder):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, index


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--seen")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dataset = Numbered(args.data, transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()]))
    loader = EndlessLoader(dataset, batch_size=16, shuffle=True, num_workers=args.workers, drop_last=True)
    model = torch.nn.Linear(3, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(args.epochs):
        began, count, seen = time.perf_counter(), 0, []
        for images, numbers in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images.mean((2, 3))), numbers % 10).backward()
            optimizer.step()
            time.sleep(args.step_ms / 1000)
            count += len(images)
            seen += numbers.tolist()
        print(f"epoch {epoch}: {count / (time.perf_counter() - began):.1f} images/s", flush=True)
        if args.seen:
            with open(args.seen, "a") as file:
                file.write(" ".join(map(str, seen)) + "\n")


if __name__ == "__main__":
    main()
