"""An iterable data set of tar shards, which are divided among the workers."""

import argparse
import glob
import io
import tarfile
import time

import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms


class Shards(IterableDataset):
    def __init__(self, pattern, transform):
        self.paths, self.transform = sorted(glob.glob(pattern)), transform

    def __iter__(self):
        info = get_worker_info()
        mine = self.paths if info is None else self.paths[info.id :: info.num_workers]
        for path in mine:
            with tarfile.open(path) as shard:
                for member in shard:
                    image = Image.open(io.BytesIO(shard.extractfile(member).read())).convert("RGB")
                    yield self.transform(image), int(member.name.split(".")[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", required=True)
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--seen")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = Shards(args.shards, transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()]))
    loader = DataLoader(data, batch_size=16, num_workers=args.workers)
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
