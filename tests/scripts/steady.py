"""A loop without validation and checkpoints, whose epochs are as long as its data, and whose steps as slow as asked."""

import argparse
import time

import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Numbered(datasets.ImageFolder):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, index


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("-j", "--workers", default=2, type=int)
    parser.add_argument("-b", "--batch-size", default=16, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--images", default=0, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--seen")
    args = parser.parse_args()
    torch.set_num_threads(1)
    train = Numbered(args.data, transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()]))
    if args.images:
        train = torch.utils.data.Subset(train, range(args.images))
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, num_workers=args.workers)
    model = torch.nn.Linear(3, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(args.epochs):
        began, count, seen = time.perf_counter(), 0, []
        for images, numbers in loader:
            loss = torch.nn.functional.cross_entropy(model(images.mean((2, 3))), numbers % 10)
            optimizer.zero_grad()
            loss.backward()
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
