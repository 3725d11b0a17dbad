"""A loader factory of a model library, and a prefetcher that holds the loader and loads one batch ahead."""

import argparse
import functools
import random
import time

import numpy as np
import torch
from torchvision import datasets, transforms


class Prefetcher:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        first = True
        for next_images, next_numbers in self.loader:
            next_images = next_images.sub(0.45).div(0.22)
            if not first:
                yield images, numbers
            first = False
            images, numbers = next_images, next_numbers
        yield images, numbers

    def __len__(self):
        return len(self.loader)


def seed_worker(worker_id, num_workers, rank, seed):
    value = num_workers * rank + worker_id + seed
    random.seed(value)
    np.random.seed(value)


class Numbered(datasets.ImageFolder):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, index


def create_loader(dataset, batch_size, workers, is_training):
    settings = {
        "batch_size": batch_size,
        "shuffle": is_training,
        "num_workers": workers,
        "drop_last": is_training,
        "worker_init_fn": functools.partial(seed_worker, num_workers=workers, rank=0, seed=1),
        "persistent_workers": True,
    }
    try:
        loader = torch.utils.data.DataLoader(dataset, **settings)
    except ValueError:
        settings.pop("persistent_workers")
        loader = torch.utils.data.DataLoader(dataset, **settings)
    return Prefetcher(loader)


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
    loader = create_loader(dataset, 16, args.workers, is_training=True)
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
