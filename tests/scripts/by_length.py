"""A loop that relies on ``len(loader)``: it indexes buffers, accumulates, finishes and schedules by it, and counts."""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __init__(self, samples, sample_ms):
        self.samples, self.sample_ms = samples, sample_ms

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        until = time.perf_counter() + self.sample_ms / 1000
        while time.perf_counter() < until:
            pass
        return torch.full((8,), float(index)), index % 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", default=19, type=int)
    parser.add_argument("--epochs", default=1000, type=int)
    parser.add_argument("--workers", default=1, type=int)
    parser.add_argument("--accumulate", default=4, type=int)
    parser.add_argument("--sample-ms", default=2.0, type=float)
    parser.add_argument("--step-ms", default=10.0, type=float)
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--shared", action="store_true", help="both loaders get their settings from a dictionary")
    parser.add_argument("--look", action="store_true", help="take one more batch of the same loader in each epoch")
    args = parser.parse_args()
    torch.set_num_threads(1)
    distributed = "RANK" in os.environ
    if distributed:
        torch.distributed.init_process_group("gloo")
    data = Slow(8 * args.batches, args.sample_ms)
    sampler = torch.utils.data.DistributedSampler(data) if distributed else None
    kwargs = {"batch_size": 8, "num_workers": args.workers}
    if args.shared:
        loader = DataLoader(data, shuffle=True, **kwargs)
        evaluation = DataLoader(Slow(32, args.sample_ms), shuffle=False, **kwargs)
    else:
        loader = DataLoader(
            data, batch_size=8, shuffle=sampler is None, sampler=sampler, num_workers=args.workers,
            persistent_workers=args.persistent,
        )  # fmt: skip
        evaluation = DataLoader(Slow(32, args.sample_ms), batch_size=8, num_workers=0)
    model = torch.nn.Linear(8, 2)
    if distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    steps_an_epoch = -(-len(loader) // args.accumulate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=args.epochs * steps_an_epoch)
    rest = len(loader) % args.accumulate or args.accumulate
    for epoch in range(args.epochs):
        if distributed:
            sampler.set_epoch(epoch)
        losses, finished = torch.zeros(len(loader)), 0
        for number, (inputs, labels) in enumerate(loader):
            last = number >= len(loader) - rest
            loss = torch.nn.functional.cross_entropy(model(inputs / 100), labels) / (rest if last else args.accumulate)
            loss.backward()
            losses[number] = loss.item()
            if (number + 1) % args.accumulate == 0 or number == len(loader) - 1:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
            finished += number == len(loader) - 1
            time.sleep(args.step_ms / 1000)
            if args.look and number == len(loader) // 2:
                next(iter(loader))
        if number + 1 != len(loader) or finished != 1:
            raise SystemExit(f"epoch {epoch} had {number + 1} batches instead of {len(loader)}")
        with torch.no_grad():
            for inputs, _ in evaluation:
                model(inputs)
        print(f"epoch {epoch}: loss {losses.mean():.3f}", flush=True)


if __name__ == "__main__":
    main()
