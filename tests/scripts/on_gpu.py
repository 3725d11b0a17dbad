"""A script that trains on a GPU, on images that are made up; --careful catches out of memory, as some trainers do.

Batches that are larger than --steep take more memory than any GPU has.
"""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.full((3, 64, 64), float(index % 7)), index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", default=16, type=int)
    parser.add_argument("--careful", action="store_true")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--steep", type=int)
    args = parser.parse_args()
    device = torch.device(args.device)
    collate = (lambda samples: {"pairs": samples}) if args.pairs else None
    loader = DataLoader(
        Images(), batch_size=args.batch_size, shuffle=True, pin_memory=device.type == "cuda", collate_fn=collate
    )
    layers = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU()]
    for _ in range(4):
        layers += [torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(16 * 64 * 64, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(3):
        for images, labels in loader:
            try:
                if args.steep and len(images) > args.steep:
                    torch.empty(1 << 42, dtype=torch.uint8, device=device)
                loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            except torch.OutOfMemoryError:
                if not args.careful:
                    raise
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
