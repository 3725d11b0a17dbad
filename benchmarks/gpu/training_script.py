"""A training script as people write them, which knows nothing of pipetune: torchvision's models and transforms.

It logs its rate like most: a line every few steps. Stages ``watch`` and ``script`` start it.
"""

import argparse
import time

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch-size", default=64, type=int)
    parser.add_argument("--workers", default=2, type=int)
    parser.add_argument("--crop", default=224, type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--log-every", default=1.0, type=float, help="seconds")
    args = parser.parse_args()
    device = torch.device(args.device)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(args.crop),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    dataset = datasets.ImageFolder(args.data, transform)
    loader = DataLoader(
        dataset,
        args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
        pin_memory=device.type == "cuda",
        persistent_workers=args.workers > 0,
    )
    model = torchvision.models.get_model(args.model, weights=None).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    logged, samples = time.time(), 0
    for epoch in range(1000):
        for batch in loader:
            images, labels = (part.to(device, non_blocking=True) for part in batch)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = criterion(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            samples += len(images)
            if time.time() - logged > args.log_every:
                now = time.time()
                print(f"epoch {epoch} loss {loss.item():.3f} rate {samples / (now - logged):.1f}", flush=True)
                logged, samples = now, 0


if __name__ == "__main__":
    main()
