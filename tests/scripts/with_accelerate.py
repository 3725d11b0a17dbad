"""A loop of Hugging Face Accelerate."""

import argparse
import time

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Numbered(datasets.ImageFolder):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, index


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--seen")
    parser.add_argument("--dispatch", action="store_true", help="rank 0 loads for all ranks")
    args = parser.parse_args()
    torch.set_num_threads(1)
    how = DataLoaderConfiguration(dispatch_batches=True if args.dispatch else None)
    accelerator = Accelerator(cpu=True, dataloader_config=how)
    dataset = Numbered(args.data, transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()]))
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=args.workers)
    model = torch.nn.Linear(3, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=args.epochs * len(loader))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for epoch in range(args.epochs):
        began, count, seen = time.perf_counter(), 0, []
        for images, numbers in loader:
            loss = torch.nn.functional.cross_entropy(model(images.mean((2, 3))), numbers % 10)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            time.sleep(args.step_ms / 1000)
            count += len(images)
            seen += numbers.tolist()
        print(f"epoch {epoch}: {count / (time.perf_counter() - began):.1f} images/s", flush=True)
        if args.seen:
            with open(args.seen, "a") as file:
                file.write(" ".join(map(str, seen)) + "\n")


if __name__ == "__main__":
    main()
