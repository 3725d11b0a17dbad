"""Two or more ranks of DistributedDataParallel on the CPU, under torchrun or, with ``--spawn``, started by itself."""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


class Numbered(datasets.ImageFolder):
    def __getitem__(self, index):
        image, _ = super().__getitem__(index)
        return image, index


def spawned(rank, args, port):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(args.spawn), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    train(args)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--step-ms", default=20.0, type=float)
    parser.add_argument("--seen")
    parser.add_argument("--spawn", default=0, type=int)
    args = parser.parse_args()
    if not args.spawn:
        train(args)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torch.multiprocessing.spawn(spawned, args=(args, port), nprocs=args.spawn)


def train(args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dataset = Numbered(args.data, transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()]))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=args.workers)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        began, count, seen = time.perf_counter(), 0, []
        for images, numbers in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images.mean((2, 3))), numbers % 10).backward()
            optimizer.step()
            time.sleep(args.step_ms / 1000)
            count += len(images)
            seen += numbers.tolist()
        if dist.get_rank() == 0:
            rate = dist.get_world_size() * count / (time.perf_counter() - began)
            print(f"epoch {epoch}: {rate:.1f} images/s", flush=True)
        if args.seen:
            with open(f"{args.seen}.{os.environ['RANK']}", "a") as file:
                file.write(" ".join(map(str, seen)) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
